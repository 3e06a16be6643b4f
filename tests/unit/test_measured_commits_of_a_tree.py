# SPDX-License-Identifier: GPL-2.0-only
"""Is what is asked of a tree's commits told apart by all that decides the answer, and is an answer found again?"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from record_builders import cell, failed
from stored_profiles import store_run

from orchestrator.artifacts.own_kernel_build import TreeBuild
from orchestrator.library import measured_commits
from orchestrator.library.lab import Lab
from orchestrator.library.measured_commits import MeasuredCommits, request_of, stamps
from orchestrator.results.runs import find_run


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """A request of these facts, on a host that has what is needed."""
    monkeypatch.setattr(measured_commits, "host_facts", lambda context: {"compiler": "gcc", "host": {"cpus": 2}})
    monkeypatch.setattr(measured_commits, "qemu_digests", lambda: {"qemu": "of this test"})
    (tmp_path / "config").write_text("CONFIG_X86_64=y\n")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "wl.c").write_text('#include "work.h"\n')

    def request(
        experiment: str = "digest",
        only: tuple[str, ...] = (),
        make: tuple[str, ...] = (),
        outside: tuple[str, ...] = ("elsewhere/wl.c",),
    ) -> str:
        files = [str(tmp_path / file) for file in outside]
        return request_of(Lab().context(), experiment, only, TreeBuild(tmp_path / "config", make), files)

    return request


def test_another_request_has_another_key(asked: Callable[..., str], tmp_path: Path) -> None:
    keys = [
        asked(),
        asked(experiment="another, or of another folder"),
        asked(only=("kprobe",)),
        asked(make=("CC=gcc-12",)),
        asked(outside=()),
    ]
    (tmp_path / "elsewhere" / "work.h").write_text("/* more */")
    keys.append(asked())
    (tmp_path / "config").write_text("CONFIG_X86_64=y\nCONFIG_FPROBE=y\n")
    keys.append(asked())
    assert len(set(keys)) == len(keys)
    assert asked() == keys[-1]


def test_another_compiler_or_qemu_is_another_request(
    asked: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [asked()]
    monkeypatch.setattr(measured_commits, "host_facts", lambda context: {"compiler": "gcc 13", "host": {"cpus": 2}})
    keys.append(asked())
    monkeypatch.setattr(measured_commits, "qemu_digests", lambda: {"qemu": "rebuilt"})
    keys.append(asked())
    assert len(set(keys)) == 3


def test_a_compiler_of_the_same_name_that_was_replaced(
    asked: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "gcc-mine"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    before = asked(make=("CC=gcc-mine",))
    program.write_text("#!/bin/sh\n# newer\n")
    assert asked(make=("CC=gcc-mine",)) != before


def test_what_was_noted_is_found_until_its_run_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCHESTRATOR_LAB", str(tmp_path / "lab"))
    (tmp_path / "clone/.git").mkdir(parents=True)
    noted = MeasuredCommits(tmp_path / "clone")
    assert noted.outcome("request", "a" * 40) is None
    run = find_run(
        store_run(tmp_path / "lab", tmp_path / "run1", cell("none"), failed("kprobe", "no")), tmp_path / "lab"
    )
    noted.remember("request", "a" * 40, run)
    noted.remember("request", "b" * 40, "the kernel does not build\na.c:1:2: error: no")
    noted.note_content("content", run)
    found = noted.outcome("request", "a" * 40)
    assert not isinstance(found, str)
    assert found is not None
    assert found.record == run.record
    assert noted.of_content("content") is not None
    assert noted.outcome("request", "b" * 40) == "the kernel does not build\na.c:1:2: error: no"
    assert noted.outcome("another", "a" * 40) is noted.of_content("other content") is None
    monkeypatch.setenv("ORCHESTRATOR_LAB", str(tmp_path / "another lab"))
    assert noted.outcome("request", "a" * 40) is noted.of_content("content") is None


def test_a_damaged_note_is_none(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    for text in ("", "{", "[]", '{"request": 5}'):
        (tmp_path / ".git" / "lab-measured.json").write_text(text)
        assert MeasuredCommits(tmp_path).outcome("request", "a" * 40) is None


@pytest.mark.parametrize("content", [b"/* caf\xe9 */\n", b"x" * ((1 << 20) + 1)])
@pytest.mark.parametrize("name", ["own.c.j2", "large.h"])
def test_a_source_that_cannot_be_read_as_one_has_a_stamp(tmp_path: Path, name: str, content: bytes) -> None:
    """Whether it can be built is for the build to say. What it includes may change without a sign."""
    main = tmp_path / "own.c.j2"
    main.write_text('#include "large.h"\n')
    (tmp_path / name).write_bytes(content)
    found = list(stamps(main))
    assert str(main) in [line.partition(" ")[0] for line in found]
    assert list(stamps(main)) != found


def test_every_file_of_a_module_s_folder_has_a_stamp(tmp_path: Path) -> None:
    (tmp_path / "mine" / "include").mkdir(parents=True)
    for name in ("Kbuild", "include/work.h"):
        (tmp_path / "mine" / name).touch()
    before = list(stamps(tmp_path / "mine"))
    (tmp_path / "mine" / "include" / "work.h").write_text("/* more */")
    assert list(stamps(tmp_path / "mine")) != before


def test_a_header_that_a_source_includes_from_elsewhere_has_a_stamp(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "apart.h").write_text("")
    (tmp_path / "elsewhere" / "other.c.j2").write_text('#include "../apart.h"\n')
    before = list(stamps(tmp_path / "elsewhere" / "other.c.j2"))
    (tmp_path / "elsewhere" / "notes").write_text("no module includes it")
    assert list(stamps(tmp_path / "elsewhere" / "other.c.j2")) == before
    (tmp_path / "apart.h").write_text("/* more */")
    assert list(stamps(tmp_path / "elsewhere" / "other.c.j2")) != before
