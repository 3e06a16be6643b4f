# SPDX-License-Identifier: GPL-2.0-only
"""An archive laid out and signed as Debian's is, in a folder: packages of one file each."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

ARCHITECTURES = ("amd64", "i386")


@dataclass(frozen=True)
class SigningKey:
    """A key of its own, made without a passphrase; ``public`` is the file that verifies what it signs."""

    home: Path

    @classmethod
    def make(cls, home: Path) -> SigningKey:
        """Make a key in a new folder."""
        home.mkdir(mode=0o700)
        key = cls(home)
        key._gpg("--passphrase", "", "--quick-generate-key", "archive@archive.invalid", "ed25519", "sign", "never")
        key._gpg("--output", str(key.public), "--export")
        return key

    @property
    def public(self) -> Path:
        """The keyring to verify with."""
        return self.home / "public.gpg"

    def sign(self, text: Path, signed: Path) -> None:
        """Write the text with its signature around it."""
        self._gpg("--yes", "--output", str(signed), "--clearsign", str(text))

    def close(self) -> None:
        """End the agent that holds the secret key."""
        subprocess.run(["gpgconf", "--homedir", self.home, "--kill", "all"], check=True, timeout=600)

    def _gpg(self, *arguments: str) -> None:
        argv = ["gpg", "--homedir", str(self.home), "--batch", "--quiet", "--pinentry-mode", "loopback", *arguments]
        subprocess.run(argv, check=True, capture_output=True, timeout=600)


@dataclass(frozen=True)
class DebianArchive:
    """One suite of an archive in ``folder``; ``key`` signs it."""

    folder: Path
    suite: str
    key: SigningKey

    @property
    def uri(self) -> str:
        """Its address for apt."""
        return f"file:{self.folder}"

    def publish(
        self,
        name: str,
        version: str,
        architecture: str,
        depends: str = "",
        more: str = "",
        files: Mapping[str, Path] = MappingProxyType({}),
    ) -> Path:
        """Add a package, /opt/NAME and ``files`` in it, to the suite's lists and sign them."""
        tree, pool = self.folder / "tree", self.folder / "pool"
        (tree / "DEBIAN").mkdir(parents=True)
        (tree / "DEBIAN").chmod(0o755)  # dpkg-deb takes none that a umask of 077 makes
        (tree / "opt").mkdir()
        pool.mkdir(exist_ok=True)
        (tree / "opt" / name).write_text(f"{name} {version} for {architecture}\n")
        for place, content_of in files.items():
            (tree / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(content_of, tree / place)
        control = f"Package: {name}\nVersion: {version}\nArchitecture: {architecture}\n"
        control += "Maintainer: Tests <tests@archive.invalid>\nDescription: a test\n"
        control += f"Depends: {depends}\n" if depends else ""
        control += more
        (tree / "DEBIAN" / "control").write_text(control)
        file = pool / f"{name}_{version.replace(':', '%3a')}_{architecture}.deb"
        subprocess.run(["dpkg-deb", "--root-owner-group", "-b", tree, file], check=True, capture_output=True)
        shutil.rmtree(tree)
        content = file.read_bytes()
        facts = f"Filename: pool/{file.name}\nSize: {len(content)}\nSHA256: {hashlib.sha256(content).hexdigest()}\n"
        for listed in ARCHITECTURES if architecture == "all" else (architecture,):
            self.lists(listed).parent.mkdir(parents=True, exist_ok=True)
            with self.lists(listed).open("a") as packages:
                packages.write(control + facts + "\n")
        self.sign()
        return file

    def lists(self, architecture: str) -> Path:
        """The suite's list of packages of an architecture."""
        return self._dists / f"main/binary-{architecture}/Packages"

    def sign(self, more: str = "") -> None:
        """Sign the lists as they are now; ``more`` are lines of the Release file."""
        for architecture in ARCHITECTURES:
            self.lists(architecture).parent.mkdir(parents=True, exist_ok=True)
            self.lists(architecture).touch()
        text = f"Origin: Tests\nSuite: {self.suite}\nCodename: {self.suite}\nArchitectures: {' '.join(ARCHITECTURES)}\n"
        text += f"Components: main\nDate: Wed, 13 Jul 2005 00:00:00 UTC\n{more}SHA256:\n"
        for architecture in ARCHITECTURES:
            content = self.lists(architecture).read_bytes()
            name = self.lists(architecture).relative_to(self._dists)
            text += f" {hashlib.sha256(content).hexdigest()} {len(content)} {name}\n"
        (self._dists / "Release").write_text(text)
        self.key.sign(self._dists / "Release", self._dists / "InRelease")

    @property
    def _dists(self) -> Path:
        return self.folder / "dists" / self.suite
