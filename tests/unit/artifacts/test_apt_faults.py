# SPDX-License-Identifier: GPL-2.0-only
"""What comes of packages that are fetched while the mirror, the network or the lab itself fails?"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from debian_archive import SigningKey
from namespaces import OWN_MOUNTS
from other_processes import FORK
from test_apt import NEEDS_APT, bench, forget_lists, with_sources

from orchestrator.artifacts.apt_root import AptRoot
from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.debian_package import Package
from orchestrator.artifacts.unpacked_packages import unpacked_packages
from orchestrator.errors import HostError

pytestmark = [NEEDS_APT, OWN_MOUNTS]

TOOL = "opt/lab-tool"


def choose(root: AptRoot) -> list[Package]:
    return [root.show("lab-tool", "i386"), root.show("lab-data", "all")]


def archived(folder: str) -> Path:
    return Path(folder) / "debian/pool/lab-tool_1.10-1_i386.deb"


def fails(context: BuildContext) -> HostError:
    """Fail to get the packages; nothing of them is left that would be used."""
    with pytest.raises(HostError, match=r"^apt could not fetch lab-tool:i386=1\.10-1") as caught:
        unpacked_packages(context, "tools", "i386", choose)
    assert caught.value.detail[0].startswith("$ apt-get -q download ")
    assert "network" in caught.value.hint
    assert list(context.cache.artifacts()) == []
    assert not list(context.cache.root.glob("debian/*"))
    return caught.value


def comes(context: BuildContext) -> None:
    made = unpacked_packages(context, "tools", "i386", choose)
    assert (made.path / TOOL).read_text() == "lab-tool 1.10-1 for i386\n"
    assert not (made.path / "archives").exists()


def check_vanished(folder: str, home: str) -> None:
    """A package is gone from the archive between its lists and its download."""
    context, root, _ = bench(folder, home)
    root.refresh()
    kept = shutil.move(archived(folder), Path(folder) / "kept.deb")
    fails(context)
    shutil.move(kept, archived(folder))
    comes(context)


def check_truncated(folder: str, home: str) -> None:
    context, root, _ = bench(folder, home)
    root.refresh()
    whole = archived(folder).read_bytes()
    archived(folder).write_bytes(whole[: len(whole) // 2])
    fails(context)
    archived(folder).write_bytes(whole)
    comes(context)


def die_saying(words: str, folder: str, home: str) -> None:
    """Get the packages, and be killed when the progress says these words."""
    context, _, _ = bench(folder, home)

    def die(text: str) -> None:
        if text.startswith(words):
            os.kill(os.getpid(), signal.SIGKILL)

    unpacked_packages(replace(context, say=die), "tools", "i386", choose)


MOMENTS = (
    "fetching the package lists",
    "fetching lab-tool",
    "fetching lab-data",
    "unpacking lab-tool",
    "unpacking lab-d",
)


def check_killed(folder: str, home: str) -> None:
    """One process after the other is killed a step later; the last one finds nothing that misleads it."""
    context, _, _ = bench(folder, home)
    for words in MOMENTS:
        process = FORK.Process(target=die_saying, args=(words, folder, home))
        process.start()
        process.join()
        assert process.exitcode == -signal.SIGKILL, words
        assert list(context.cache.artifacts()) == []
        forget_lists(context)
    assert [place.suffix for place in context.cache.root.glob("debian/*")] == [".building"]
    comes(context)
    assert [place.suffix for place in context.cache.root.glob("debian/*")] == [""]


def check_no_network(folder: str, home: str) -> None:
    """What was fetched needs no mirror; what was not says which one cannot be reached."""
    context, _, _ = bench(folder, home)
    comes(context)
    shutil.rmtree(Path(folder) / "debian")
    forget_lists(context)
    comes(context)
    with pytest.raises(HostError) as caught:
        unpacked_packages(context, "others", "i386", lambda root: [root.show("lab-data", "all")])
    assert f"file:{folder}/debian" in caught.value.what
    assert "error: " not in caught.value.what
    assert caught.value.hint


@pytest.mark.parametrize("check", [check_vanished, check_truncated, check_killed, check_no_network])
def test_what_fails_on_the_way_of_packages(check: Callable[[str, str], None], tmp_path: Path, key: SigningKey) -> None:
    with_sources(check, tmp_path, key)
