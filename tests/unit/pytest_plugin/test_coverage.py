# SPDX-License-Identifier: GPL-2.0-only
"""Are instructions those of the module that was there, and does the session say what it covered and what not?"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.artifacts.debug_info import NoDebugInfoError
from orchestrator.artifacts.kernel_code import CodePart, KernelCode, Symbol
from orchestrator.artifacts.modules import Module
from orchestrator.artifacts.ready_kernels import Kernel
from orchestrator.errors import UsageError
from orchestrator.guest.guest import Guest
from orchestrator.guest.machine import Machine
from orchestrator.profile.lines.dwarf_lines import SourceLines
from orchestrator.profile.lines.line_source import Frame
from orchestrator.pytest_plugin import coverage
from orchestrator.pytest_plugin.coverage import Coverage, Covered, GuestCoverage, Lines, covered_lines, parts_of

pytest_plugins = ["pytester"]

TEXT, INIT = 0x1000, 0x2000
"""Where a module's file has them."""
TABLE = 64


def session(*names: str, folder: Path = Path()) -> Coverage:
    options = {"qemu_cover": "out.info", "qemu_cover_of": list(names), "--qemu": True}
    config = SimpleNamespace(getoption=options.get, invocation_params=SimpleNamespace(dir=folder.absolute()))
    return Coverage(cast(pytest.Config, config))


def kernel(*symbols: Symbol) -> Kernel:
    code = KernelCode([*symbols, Symbol(0xC1000100, "T", "_etext")], b"", 4, (), {})
    return cast(Kernel, SimpleNamespace(key="a-key", code=code, spec=SimpleNamespace(name="mine")))


class Run:
    """A guest, by what it has executed so far, and by where it has sections of modules."""

    def __init__(self, folder: Path, of: Coverage, patch: pytest.MonkeyPatch, kernel: Kernel) -> None:
        self.session, self.executed, self.sections = of, dict[int, int](), dict[str, int]()
        self.table = folder / "guest.cover"
        self.guest = GuestCoverage(of, kernel, cast(Guest, SimpleNamespace(console=SimpleNamespace(path=self.table))))
        parts = {".text": CodePart(TEXT, 0x100, 0), ".init.text": CodePart(INIT, 0x100, 0)}
        patch.setattr(coverage, "module_code", lambda file: SimpleNamespace(sections=parts))
        patch.setattr(coverage, "module_sections", lambda guest, names: {names[0]: self.sections})

    def execute(self, *addresses: int) -> None:
        for address in addresses:
            self.executed[address] = self.executed.get(address, 0) + 1
        records = [struct.pack("<QQ", *pair) for pair in self.executed.items()]
        self.table.write_bytes(b"".join(records).ljust(16 * TABLE, b"\0"))

    def load(self, name: str, text: int, init: int, *executed: int) -> Covered:
        self.sections = {".text": text, ".init.text": init, ".data": 0}
        module = Module(name, Path(f"{name}.ko"), name, None)
        with self.guest.loading(module, module.file):
            self.execute(*executed)
        return self.session.covered(Covered(name, kernel(), module))


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    return Run(tmp_path, session(folder=tmp_path), monkeypatch, kernel())


def test_an_instruction_is_of_the_module_that_is_there(run: Run) -> None:
    run.execute(0x5000, 0x9000)
    covered = run.load("one", 0x5000, 0x6000, 0x6000, 0x6010, 0x5004)
    run.execute(0x5000, 0x5000, 0x9000, 0x50FF, 0x5100, 0x4FFF)
    run.guest.unloaded("one")
    run.execute(0x5000)
    other_covered = run.load("other", 0x5000, 0x7000, 0x7000)
    run.execute(0x5000)
    run.guest.end()
    assert covered.executed == {INIT: 1, INIT + 0x10: 1, TEXT + 4: 1, TEXT: 2, TEXT + 0xFF: 1}
    assert other_covered.executed == {INIT: 1, TEXT: 1}
    assert not run.table.exists()


def test_the_memory_of_an_init_function_is_used_for_other_code(run: Run) -> None:
    covered = run.load("one", 0x5000, 0x6000, 0x6000)
    run.execute(0x6000)
    other_covered = run.load("other", 0x6000, 0x7000, 0x7000, 0x6004)
    run.execute(0x6004)
    run.guest.end()
    assert (covered.executed, other_covered.executed) == ({INIT: 1}, {INIT: 1, TEXT + 4: 2})


@pytest.mark.parametrize(("name", "text"), [("other", 0x5080), ("one", 0x8000)])
def test_a_module_that_a_command_has_removed(run: Run, name: str, text: int) -> None:
    covered = run.load("one", 0x5000, 0x6000)
    run.execute(0x5090)
    again = run.load(name, text, 0x9000)
    run.execute(0x5090)
    run.guest.end()
    assert covered.executed == {TEXT + 0x90: 1}
    assert (again.executed == {TEXT + 0x10: 1}) == (name == "other")


def test_a_module_that_is_refused_has_no_place(run: Run) -> None:
    loading = run.guest.loading(Module("one", Path("one.ko"), "one", None), Path("one.ko"))
    with contextlib.suppress(RuntimeError), loading:
        run.execute(0x5000)
        raise RuntimeError
    covered = run.load("one", 0x5000, 0x6000)
    run.execute(0x5000)
    run.guest.end()
    run.guest.end()
    assert covered.executed == {TEXT: 1}


@given(st.lists(st.tuples(st.sampled_from("lux"), st.lists(st.integers(0x5000, 0x501F), max_size=4)), max_size=20))
def test_what_was_executed_adds_up(
    tmp_path_factory: pytest.TempPathFactory, events: list[tuple[str, list[int]]]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("any")
        run = Run(folder, session(folder=folder), patch, kernel())
        covered = run.load("one", 0x5000, 0x9000)
        is_loaded, expected = True, 0
        for event, addresses in events:
            if event == "l":
                run.load("one", 0x5000, 0x9000)
                is_loaded = True
            elif event == "u":
                run.guest.unloaded("one")
                is_loaded = False
            run.execute(*addresses)
            expected += len(addresses) * is_loaded
            if not is_loaded:
                run.guest.settle()
        run.guest.end()
        assert covered.executed.total() == expected


def test_a_table_without_room(run: Run) -> None:
    run.execute(*range(0x5000, 0x5000 + TABLE))
    run.guest.end()
    assert run.session.problems == {
        "guest": f"a guest has executed more than {TABLE} different instructions of modules"
    }


def test_a_wanted_function_has_the_parts_that_the_compiler_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("other", "vfs_read", "vfs_reader", "vfs_read.cold", "vfs_read_data")
    symbols = [Symbol(0xC1000000 + 16 * at, "t", name) for at, name in enumerate(names)]
    run = Run(tmp_path, session("vfs_read", folder=tmp_path), monkeypatch, kernel(*symbols))
    run.execute(0xC1000000, 0xC1000010, 0xC100001F, 0xC1000020, 0xC1000030, 0xC1000040)
    run.guest.end()
    counts = run.session.covered(Covered("vfs_read", kernel())).executed
    assert counts == {0xC1000010: 1, 0xC100001F: 1, 0xC1000030: 1}


def test_a_line_is_executed_as_often_as_its_most_executed_instruction() -> None:
    outer, inner = Frame("read", "a.c", 10), Frame("check", "a.h", 3)
    frames = {0: (outer,), 1: (outer,), 2: (inner, outer), 3: (inner, Frame("read", "a.c", 12)), 4: ()}
    code = KernelCode([Symbol(0, "t", "read"), Symbol(8, "d", "")], b"", 4, (), {})
    of = cast(SourceLines, SimpleNamespace(code=code, lines_of=lambda *parts: frames))
    counts = covered_lines(of, parts_of(code), {1: 5, 0: 2, 2: 4}, lambda file: f"/{file}")
    assert counts == {("/a.c", 10): 5, ("/a.h", 3): 4, ("/a.c", 12): 0}
    assert parts_of(code) == [range(8)]


def test_wrong_machines(tmp_path: Path) -> None:
    covered = session(folder=tmp_path)
    with pytest.raises(UsageError, match="on KVM nothing counts"):
        covered.machine(cast(Any, None), kernel(), cast(Machine, SimpleNamespace(timing="kvm")))
    unknown = cast(Kernel, SimpleNamespace(code=None, spec=SimpleNamespace(name="mine")))
    with pytest.raises(UsageError, match="'mine' does not say where its code ends"):
        covered.machine(cast(Any, None), unknown, cast(Machine, SimpleNamespace(timing="tcg")))


# --- the session ----------------------------------------------------------------------------------


Found = Mapping[str, Mapping[tuple[str, int], int] | str]


class Terminal:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def write_line(self, line: str, **_: bool) -> None:
        self.lines.append(line)


def lines_of(found: Found) -> Callable[[Coverage, Covered], Lines]:
    def of(_: Coverage, code: Covered) -> Lines:
        lines = found[code.name]
        if isinstance(lines, str):
            raise NoDebugInfoError(lines, where="one.ko")
        return Lines(lines)

    return of


def ended(covered: Coverage, found: Found, patch: pytest.MonkeyPatch) -> tuple[Sequence[str], int]:
    """What a session prints, and its exit status, whose code has these lines, or a reason why none."""
    patch.setattr(Coverage, "_lines_of", lines_of(found))
    for name in found:
        covered.covered(Covered(name, kernel()))
    running, terminal = SimpleNamespace(config=SimpleNamespace(), exitstatus=0), Terminal()
    covered.pytest_sessionfinish(cast(pytest.Session, running))
    covered.pytest_terminal_summary(cast(Any, terminal))
    return terminal.lines, int(running.exitstatus)


LINES = {("a.c", 1): 3, ("a.c", 2): 0, ("b.c", 9): 1}


def test_the_lines_and_the_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    printed, status = ended(session(folder=tmp_path), {"mine": LINES}, monkeypatch)
    assert (printed, status) == ([f"coverage: mine 2 of 3 lines (66.7 %), written to {tmp_path}/out.info"], 0)
    expected = "TN:mine\nSF:a.c\nDA:1,3\nDA:2,0\nLF:2\nLH:1\nend_of_record\n"
    assert tmp_path.joinpath("out.info").read_text().startswith(expected)


def test_a_module_without_lines_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    printed, status = ended(session(folder=tmp_path), {"mine": LINES, "its": "it is stripped"}, monkeypatch)
    assert (printed[1:], status) == (["coverage: its: it is stripped (one.ko)"], 0)


def test_a_wanted_name_without_lines_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: Found = {"mine": LINES, "its": "it is stripped", "other": LINES}
    printed, status = ended(session("mine", "its", "none", folder=tmp_path), found, monkeypatch)
    assert status == 1
    assert [line.partition(" of ")[0] for line in printed] == [
        "coverage: mine 2",
        "coverage: its: it is stripped (one.ko)",
        "coverage: none: no test loads a module",
    ]


def test_nothing_is_covered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    printed, status = ended(session(folder=tmp_path), {}, monkeypatch)
    assert (printed, status) == (["coverage: nothing: no test loads a module by guest.load or kmod"], 1)
    assert not tmp_path.joinpath("out.info").exists()


def test_a_file_that_becomes_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    covered = session(folder=tmp_path)
    tmp_path.joinpath("out.info").mkdir()
    printed, status = ended(covered, {"mine": LINES}, monkeypatch)
    assert (printed, status) == ([f"coverage: {tmp_path}/out.info: cannot be written: Is a directory"], 1)


def test_workers_send_what_they_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    execnet = pytest.importorskip("execnet")
    outputs = []
    both: Sequence[Found] = ({"mine": LINES}, {"mine": {**LINES, ("a.c", 2): 4}, "its": "it is stripped"})
    for found in both:
        config = SimpleNamespace(workeroutput={})
        worker = session(folder=tmp_path)
        monkeypatch.setattr(Coverage, "_lines_of", lines_of(found))
        for name in found:
            worker.covered(Covered(name, kernel()))
        worker.pytest_sessionfinish(cast(pytest.Session, SimpleNamespace(config=config, exitstatus=0)))
        outputs.append(execnet.loads(execnet.dumps(config.workeroutput)))
    controller = session(folder=tmp_path)
    for number, output in enumerate([*outputs, {}]):
        node = SimpleNamespace(gateway=SimpleNamespace(id=f"gw{number}"), workeroutput=output)
        controller.pytest_testnodedown(node)
    printed, status = ended(controller, {}, monkeypatch)
    assert status == 0
    assert printed == [
        f"coverage: mine 3 of 3 lines (100.0 %), written to {tmp_path}/out.info",
        "coverage: its: it is stripped (one.ko)",
        "coverage: gw2: this worker has crashed, and nothing is known of its guests",
    ]
    assert "DA:1,6\nDA:2,4\n" in tmp_path.joinpath("out.info").read_text()


WRONG = {
    ("--qemu-cover=out.info",): "--qemu-cover is about what guests execute: it needs --qemu",
    ("--qemu", "--qemu-cover-of=mine"): "--qemu-cover-of needs --qemu-cover FILE",
    ("--qemu", "--qemu-cover=none/out.info"): "--qemu-cover: *none/out.info is not a file in a folder that exists",
    ("--qemu", "--qemu-cover=."): "--qemu-cover: * is not a file in a folder that exists",
    ("--qemu", "--qemu-cover=/dev/null"): "--qemu-cover: /dev/null is not a file in a folder that exists",
}


@pytest.mark.parametrize("options", WRONG)
def test_wrong_usage_is_a_sentence(pytester: pytest.Pytester, options: tuple[str, ...]) -> None:
    result = pytester.runpytest_inprocess(*options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {WRONG[options]}"])
