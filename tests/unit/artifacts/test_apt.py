# SPDX-License-Identifier: GPL-2.0-only
"""Are packages fetched from the host's own mirror, whole and verified, and failures reported with their cause?"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from debian_archive import DebianArchive, SigningKey
from namespaces import OWN_MOUNTS, fork_with_mount

from orchestrator.artifacts import apt_root, debian_mirror, pinned_packages
from orchestrator.artifacts.apt_root import AptRoot
from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import Cache
from orchestrator.artifacts.debian_mirror import DebianMirror
from orchestrator.artifacts.debian_package import NoSuchPackageError, Package, package_of
from orchestrator.artifacts.package_archive import system_archive
from orchestrator.artifacts.pinned_packages import origins, versions
from orchestrator.artifacts.unpacked_packages import unpacked_packages
from orchestrator.catalog.debian_release import debian
from orchestrator.catalog.image_recipes import ImageRecipe
from orchestrator.errors import HostError
from orchestrator.process import Finished

NEEDS_APT = pytest.mark.skipif(
    any(shutil.which(name) is None for name in ("apt-get", "apt-cache", "dpkg-deb", "gpg", "gpg-agent")),
    reason="needs apt, dpkg and gpg",
)
pytestmark = [NEEDS_APT, OWN_MOUNTS]


def with_sources(
    check: Callable[[str, str], None], tmp_path: Path, key: SigningKey, line: str = "deb {uri} bookworm main\n"
) -> None:
    """Call a check where /etc/apt names an archive of two packages, and apt may trust anything."""
    lay_out(tmp_path, key, line)
    before = sorted(tmp_path.glob("etc/**/*"))
    mount = ("none", "bind", str(tmp_path / "etc"), Path("/etc/apt"))
    assert fork_with_mount(mount, check, tmp_path, key.home) == ""
    assert sorted(tmp_path.glob("etc/**/*")) == before


def lay_out(folder: Path, key: SigningKey, line: str = "deb {uri} bookworm main\n") -> None:
    """The archive, and what is to be in /etc/apt."""
    shutil.copytree(published(key), folder, dirs_exist_ok=True)
    sources = folder / "etc" / "sources.list.d"
    sources.mkdir(parents=True)
    (sources / "host.list").write_text(line.format(uri=archive_in(folder, key).uri, folder=folder))
    # Settings that make sense for the host's own release, and none for ours.
    (folder / "etc/apt.conf").write_text(
        'APT::Default-Release "trixie";\nAPT::Get::AllowUnauthenticated "true";\n'
        'Acquire::Retries "0";\n'  # nothing here comes if only one waits
        'Acquire::AllowInsecureRepositories "true";\n'
    )
    (folder / "etc/preferences").write_text("Package: *\nPin: release n=bookworm\nPin-Priority: -1\n")


def published(key: SigningKey) -> Path:
    """A folder with the archive, made once and copied for each check."""
    folder = key.home.with_name("published")
    if folder.exists():
        return folder
    folder.mkdir()
    archive = archive_in(folder, key)
    for version in ("1.9-1", "1.10-1"):
        archive.publish("lab-tool", version, "i386", "lab-data (>= 1.0), libc6 | libc7")
    archive.publish("lab-data", "1:2.0~rc1+b2", "all")
    security_in(folder, key).sign()
    return folder


def archive_in(folder: Path, key: SigningKey) -> DebianArchive:
    (folder / "debian").mkdir(exist_ok=True)
    return DebianArchive(folder / "debian", debian().release, key)


def security_in(folder: Path, key: SigningKey) -> DebianArchive:
    """The archive that mirrors have beside Debian's."""
    (folder / "debian-security").mkdir(exist_ok=True)
    return DebianArchive(folder / "debian-security", debian().security_suite, key)


def bench(folder: str, home: str) -> tuple[BuildContext, AptRoot, list[str]]:
    """What the checks work with. The host's keyring is that of the test's own archive."""
    keyrings = [str(SigningKey(Path(home)).public)]
    ours = debian().model_copy(update={"keyrings": keyrings, "suites": [debian().release]})
    patch = pytest.MonkeyPatch()  # of a process that ends with the check
    for module in (debian_mirror, apt_root, pinned_packages):
        patch.setattr(module, "debian", lambda: ours)
    patch.setattr(apt_root, "_PAUSE", 0.0)
    printed: list[str] = []
    context = BuildContext(Cache(Path(folder) / "a cache"), say=printed.append)
    return context, AptRoot(context, ["amd64", "i386"]), printed


def forget_lists(context: BuildContext) -> None:
    """As if the package lists had been fetched long ago."""
    for stamp in context.cache.root.glob("apt/*/complete"):
        stamp.unlink()


def check_show_and_download(folder: str, home: str) -> None:
    context, root, _ = bench(folder, home)
    root.refresh()
    tool, data = root.show("lab-tool", "i386"), root.show("lab-data", "all")
    assert tool.pinned == "lab-tool:i386=1.10-1"
    assert tool.depends == "lab-data (>= 1.0), libc6 | libc7"
    assert data.pinned == "lab-data=1:2.0~rc1+b2"
    for name, architecture in (("lab-tool", "amd64"), ("lab-nothing", "i386"), ("--help", "i386"), ("a b", "all")):
        with pytest.raises(NoSuchPackageError):
            root.show(name, architecture)
    files = root.download([data, tool], context.cache.root / "debs")
    assert [file.name.split("_")[0] for file in files] == ["lab-data", "lab-tool"]
    assert [hashlib.sha256(file.read_bytes()).hexdigest() for file in files] == [data.sha256, tool.sha256]


def check_pin(folder: str, home: str) -> None:
    context, _, printed = bench(folder, home)

    def choose(root: AptRoot) -> list[Package]:
        return [root.show("lab-tool", "i386"), root.show("lab-data", "all")]

    chosen = unpacked_packages(context, "tools", "i386", choose)
    assert (chosen.path / "opt/lab-tool").read_text() == "lab-tool 1.10-1 for i386\n"
    assert (chosen.path / "opt/lab-data").exists()
    assert not (chosen.path / "archives").exists()
    packages = chosen.inputs["packages"]
    assert isinstance(packages, dict)
    assert {name: version for name, (version, _) in packages.items()} == {
        "lab-tool:i386": "1.10-1",
        "lab-data:all": "1:2.0~rc1+b2",
    }
    archive_in(Path(folder), SigningKey(Path(home))).publish("lab-tool", "1.11-1", "i386")
    offline = BuildContext(context.cache, offline=True)
    assert unpacked_packages(context, "tools", "i386", choose) == chosen
    assert unpacked_packages(offline, "tools", "i386", choose) == chosen
    # The record gone, the newest is chosen.
    printed.clear()
    (context.cache.root / "pins/tools.json").unlink()
    forget_lists(context)
    newer = unpacked_packages(context, "tools", "i386", choose)
    assert (newer.path / "opt/lab-tool").read_text() == "lab-tool 1.11-1 for i386\n"
    assert printed[0].startswith("fetching the package lists")


RECIPE = ImageRecipe(name="toy", title="a toy", arch="i386", packages=("lab-shell",), init="small", size=1 << 30)


def publish_system(folder: str, home: str) -> DebianArchive:
    """An archive with a package that every system has, and one with a dependency."""
    archive = archive_in(Path(folder), SigningKey(Path(home)))
    archive.publish("lab-core", "1-1", "i386", more="Essential: yes\n")
    archive.publish("lab-shell", "1:5-1", "i386", "lab-data (>= 1.0)")
    return archive


def check_system(folder: str, home: str) -> None:
    context, _, printed = bench(folder, home)
    archive = publish_system(folder, home)
    first = system_archive(context, RECIPE)
    assert versions(first) == {"lab-core:i386": "1-1", "lab-data:all": "1:2.0~rc1+b2", "lab-shell:i386": "1:5-1"}
    stanzas = (first.path / "Packages").read_text().split("\n\n")
    assert len(stanzas) == 3
    for package, stanza in ((package_of(stanza), stanza) for stanza in stanzas):
        name = re.findall(r"^Filename: \./(.*)$", stanza, re.MULTILINE)[0]
        assert hashlib.sha256((first.path / name).read_bytes()).hexdigest() == package.sha256
    # What was chosen is fetched again as long as the archive has it, and after that chosen anew.
    archive.publish("lab-shell", "1:6-1", "i386", "lab-data (>= 1.0)")
    forget_lists(context)
    shutil.rmtree(first.path)
    assert versions(system_archive(context, RECIPE)) == versions(first)
    index = archive.lists("i386")
    index.write_text("\n\n".join(s for s in index.read_text().split("\n\n") if "Version: 1:5-1" not in s))
    archive.sign()
    forget_lists(context)
    shutil.rmtree(first.path)
    printed.clear()
    assert versions(system_archive(context, RECIPE))["lab-shell:i386"] == "1:6-1"
    assert printed == ["fetching the package lists of Debian 12 (i386)", *(f"fetching {line}" for line in CHOSEN_ANEW)]
    # Another wish is another choice.
    more = RECIPE.model_copy(update={"packages": ("lab-data",)})
    assert set(versions(system_archive(context, more))) == {"lab-core:i386", "lab-data:all"}


CHOSEN_ANEW = ["lab-core 1-1", "lab-data 1:2.0~rc1+b2", "lab-shell 1:6-1"]


def check_impossible_system(folder: str, home: str) -> None:
    context, _, _ = bench(folder, home)
    publish_system(folder, home)
    for wanted in ("lab-tool", "lab-nothing"):
        impossible = RECIPE.model_copy(update={"packages": (wanted,)})
        with pytest.raises(HostError, match="do not make an installable system") as caught:
            system_archive(context, impossible)
        assert wanted in " ".join(caught.value.detail[1:])
    assert list(context.cache.artifacts()) == []
    assert not (context.cache.root / "pins").exists()


def check_damaged_package(folder: str, home: str) -> None:
    context, root, _ = bench(folder, home)
    root.refresh()
    tool = root.show("lab-tool", "i386")
    file = Path(folder) / f"debian/pool/lab-tool_{tool.version}_i386.deb"
    content = bytearray(file.read_bytes())
    content[-20] ^= 1
    file.write_bytes(content)
    with pytest.raises(HostError, match="apt could not fetch lab-tool:i386=1") as caught:
        unpacked_packages(context, "tools", "i386", lambda root: [root.show("lab-tool", "i386")])
    assert caught.value.detail[0].startswith("$ apt-get -q download lab-tool:i386=")
    assert list(context.cache.artifacts()) == []


def check_limping_archive(folder: str, home: str) -> None:
    _, root, printed = bench(folder, home)
    root.refresh()
    assert printed[-1].startswith("continuing without bookworm-security: ")
    assert not list(Path(folder).glob("a cache/apt/*/state/lists/*security*Packages"))
    assert root.show("lab-tool", "i386").version == "1.10-1"
    printed.clear()
    root.refresh()
    assert printed == []


def check_suites_are_recorded(folder: str, home: str) -> None:
    context, _, _ = bench(folder, home)
    unpacked_packages(context, "tools", "i386", lambda root: [root.show(*w) for w in WANTED])
    (record,) = context.cache.root.glob("pins/tools.json")
    assert [package["suite"] for package in json.loads(record.read_text())] == ["bookworm", "bookworm"]
    assert origins(context, "tools") == {
        "lab-tool:i386": "1.10-1 (bookworm)",
        "lab-data:all": "1:2.0~rc1+b2 (bookworm)",
    }


WANTED = (("lab-tool", "i386"), ("lab-data", "all"))


def check_security_suite(folder: str, home: str) -> None:
    security_in(Path(folder), SigningKey(Path(home))).publish("lab-tool", "1.10-1+deb12u1", "i386")
    _, root, _ = bench(folder, home)
    root.refresh()
    tool = root.show("lab-tool", "i386")
    assert root.with_suites([tool])[0].suite == "bookworm-security"
    assert tool.version == "1.10-1+deb12u1"


def check_foreign_signature(folder: str, home: str) -> None:
    # The path of the agent's socket has at most 107 bytes, and that of a test's own folder may be longer.
    with tempfile.TemporaryDirectory() as short:
        other_key = SigningKey.make(Path(short) / "other")
        context, root, _ = bench(folder, str(other_key.home))
        other_key.close()
        with pytest.raises(HostError, match="no key of Debian's archive on this host has signed") as caught:
            root.refresh()
    assert "debian-archive-keyring" in caught.value.hint
    assert list(context.cache.root.glob("apt/*/complete")) == []


def check_unsigned(folder: str, home: str) -> None:
    (Path(folder) / "debian/dists/bookworm/InRelease").unlink()
    _, root, _ = bench(folder, home)
    with pytest.raises(HostError, match="has no signature of Debian 12"):
        root.refresh()


def check_changed_lists(folder: str, home: str) -> None:
    with (Path(folder) / "debian/dists/bookworm/main/binary-i386/Packages").open("a") as packages:
        packages.write("\n")
    _, root, _ = bench(folder, home)
    with pytest.raises(HostError, match="the package lists of Debian 12 cannot be fetched"):
        root.refresh()


def check_partial_mirror(folder: str, home: str) -> None:
    (Path(folder) / "debian/dists/bookworm").rename(Path(folder) / "debian/dists/trixie")
    _, root, _ = bench(folder, home)
    with pytest.raises(HostError, match=r"the mirror file:\S+ has no Debian 12 \(bookworm\)") as caught:
        root.refresh()
    assert "ORCHESTRATOR_DEBIAN_MIRROR=" in caught.value.hint


def check_expired(folder: str, home: str) -> None:
    archive_in(Path(folder), SigningKey(Path(home))).sign("Valid-Until: Wed, 20 Jul 2005 00:00:00 UTC\n")
    _, root, _ = bench(folder, home)
    with pytest.raises(
        HostError, match=r"Release file of Debian 12 \(bookworm\) .* is expired \(invalid since"
    ) as caught:
        root.refresh()
    assert "ORCHESTRATOR_DEBIAN_MIRROR=" in caught.value.hint
    # What the hint says of apt's settings is right.
    settings = Path("/etc/apt/apt.conf.d")
    settings.mkdir()
    (settings / "90expired").write_text(caught.value.hint.partition("apt.conf.d: ")[2])
    root.refresh()
    shutil.rmtree(settings)
    assert root.show("lab-tool", "i386").version == "1.10-1"


SUITES = ("bookworm", "bookworm-updates", "bookworm-security")


@pytest.mark.parametrize(
    ("printed", "failed"),
    [
        ("", []),
        ("E: Failed to fetch http://a.invalid/debian/dists/bookworm/InRelease  Could not connect", ["bookworm"]),
        (
            "W: Failed to fetch http://a.invalid/d/dists/bookworm-updates/main/x  Hash Sum mismatch",
            ["bookworm-updates"],
        ),
        ("E: The repository 'http://a.invalid bookworm-security Release' is not signed.", ["bookworm-security"]),
        (
            "E: Release file for http://a.invalid/d/dists/bookworm/InRelease is expired (invalid since 1d).",
            ["bookworm"],
        ),
        ("W: GPG error: http://a.invalid/d bookworm InRelease: NO_PUBKEY 6ED0E7B82643E131", ["bookworm"]),
        ("W: http://a.invalid/d/dists/bookworm/InRelease: Policy will reject signature within a year", []),
        ("Get:1 http://a.invalid/debian bookworm InRelease [151 kB]\nE: Some index files failed to download.", []),
    ],
)
def test_the_suites_that_apt_complains_of(printed: str, failed: list[str]) -> None:
    assert apt_root.failed_suites(printed, SUITES) == failed


@pytest.mark.parametrize("status", [401, 403, 407, 404, 500])
def test_a_mirror_that_gives_nothing_out_is_distinguished_from_one_that_lacks_the_release(status: int) -> None:
    words = f"Err:1 http://a.invalid/debian bookworm InRelease\n  {status}  Something\nE: The repository is not signed."
    error = apt_root._without_lists(
        DebianMirror("http://me:secret@a.invalid/debian", None), debian(), Finished((), 100, "", words)
    )
    assert (f"it answers {status}" in error.what) == (status != 404)
    assert ("has no Debian 12" in error.what) == (status == 404)
    assert "secret" not in str(error)


def check_password(folder: str, home: str) -> None:
    _, root, printed = bench(folder, home)
    with pytest.raises(HostError, match="cannot be fetched from") as caught:
        root.refresh()
    assert "127.0.0.1:9/debian" in str(caught.value)
    assert "secret" not in str(caught.value) + "".join(printed)


def check_no_mirror(folder: str, home: str) -> None:
    """What mmdebstrap takes by default is taken, and without mmdebstrap there is a hint."""
    _, root, _ = bench(folder, home)
    assert debian_mirror.default_mirror() is not None or shutil.which("mmdebstrap") is None
    patch = pytest.MonkeyPatch()  # of a process that ends with the check
    with patch.context() as without:
        without.setattr(shutil, "which", lambda name: None)
        with pytest.raises(HostError, match="apt sources name no Debian mirror") as caught:
            root.refresh()
    assert "ORCHESTRATOR_DEBIAN_MIRROR=" in caught.value.hint
    assert "debian-archive-keyring" in caught.value.hint
    script = Path(folder) / "mmdebstrap"
    script.write_text("    my $mirror    = 'http://127.0.0.1:9/debian';\n")
    patch.setattr(shutil, "which", lambda name: str(script))
    with pytest.raises(HostError, match=r"cannot be fetched from http://127\.0\.0\.1:9/debian"):
        root.refresh()


CHECKS = (
    check_show_and_download,
    check_pin,
    check_system,
    check_impossible_system,
    check_damaged_package,
    check_suites_are_recorded,
    check_security_suite,
    check_foreign_signature,
    check_unsigned,
    check_changed_lists,
    check_partial_mirror,
    check_expired,
)


def check_in_turn(folder: str, home: str) -> None:
    """Each check with an archive and with settings of its own, below one mount."""
    etc = Path(folder) / "etc"
    for check in CHECKS:
        path = Path(folder) / check.__name__
        lay_out(path, SigningKey(Path(home)))
        shutil.copytree(path / "etc", etc, dirs_exist_ok=True)
        before = sorted(etc.glob("**/*"))
        check(str(path), home)
        assert sorted(etc.glob("**/*")) == before, check.__name__


def test_packages_of_the_hosts_own_mirror(tmp_path: Path, key: SigningKey) -> None:
    with_sources(check_in_turn, tmp_path, key)


def test_an_archive_in_mid_synchronisation_is_left_to_its_main_suite(tmp_path: Path, key: SigningKey) -> None:
    security = "deb {uri} trixie main\ndeb file:/nowhere trixie-security main\n"
    with_sources(check_limping_archive, tmp_path, key, security)


def test_a_host_that_has_newer_suites_gets_the_guests_release(tmp_path: Path, key: SigningKey) -> None:
    with_sources(check_show_and_download, tmp_path, key, "deb [trusted=yes] {uri} trixie main contrib\n")


def test_a_host_of_another_distribution_gets_the_default_mirror(tmp_path: Path, key: SigningKey) -> None:
    with_sources(check_no_mirror, tmp_path, key, "deb file:{folder}/ubuntu noble main universe\n")


def test_a_password_in_an_address_is_not_printed(tmp_path: Path, key: SigningKey) -> None:
    with_sources(check_password, tmp_path, key, "deb http://me:secret@127.0.0.1:9/debian trixie main\n")
