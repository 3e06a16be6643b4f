# SPDX-License-Identifier: GPL-2.0-only
"""Do the guest's programs compile to the same bytes each time, and does gtodbench keep to its command line?"""

from __future__ import annotations

import os
import platform
import re
import subprocess
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import Cache
from orchestrator.artifacts.guest_programs import guest_programs
from orchestrator.benchmarks.calls.program_output import parse, parse_called
from orchestrator.benchmarks.calls.sampling import Sampling

ON_X86_64 = pytest.mark.skipif(platform.machine() != "x86_64", reason="runs the x86_64 program on the host")
pytestmark = pytest.mark.usefixtures("host_compiles")
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root may enter another root")


@pytest.fixture(scope="module")
def first_place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache in which all programs are compiled once."""
    return tmp_path_factory.mktemp("cache")


def compiled(root: Path, arch: str) -> dict[str, bytes]:
    artifact = guest_programs(BuildContext(Cache(root)), arch)
    return {path.name: path.read_bytes() for path in artifact.path.iterdir() if path.suffix == ""}


@pytest.mark.parametrize(
    ("arch", "bits"),
    [("x86_64", 64), pytest.param("i386", 32, marks=pytest.mark.nightly("all programs for i386, twice: four seconds"))],
)
def test_the_same_bytes_twice(arch: str, bits: int, first_place: Path, tmp_path: Path) -> None:
    first = compiled(first_place, arch)
    assert set(first) == {"init", "agent", "callbench", "macrobench", "peek", "runbench", "seedrandom"}
    assert compiled(tmp_path / "a second place", arch) == first
    for name in first:
        with (guest_programs(BuildContext(Cache(first_place)), arch).path / name).open("rb") as file:
            elf = ELFFile(file)
            assert elf.elfclass == bits
            assert elf.get_section_by_name(".interp") is None
            assert elf.get_section_by_name(".note.gnu.build-id") is None
    assert not any(str(place).encode() in content for content in first.values() for place in (first_place, tmp_path))


@pytest.fixture(scope="module")
def program(first_place: Path) -> Path:
    return guest_programs(BuildContext(Cache(first_place)), "x86_64").path / "callbench"


def gtodbench(program: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program, *arguments], check=False, capture_output=True, text=True, timeout=600)


def undisturbed(program: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The same with batches that have to fall between the interrupts of a host, which may be busy for a while."""
    for _ in range(30):
        ended = gtodbench(program, *arguments)
        if "no batch without an interrupt" not in ended.stderr:
            break
    return ended


@ON_X86_64
@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((), "give one of -n CALLS, -c CALLS and -s SECONDS"),
        (("-r", "2"), "give one of"),
        (("-n", "5", "-c", "5"), "give one of"),
        (("-n", "5", "-s", "1"), "give one of"),
        (("-n",), "found -n"),
        (("-n", ""), "found -n"),
        (("-n", "0"), "found -n"),
        (("-n", "-5"), "found -n"),
        (("-n", "5x"), "found -n"),
        (("-n", "99999999999999999999"), "found -n"),
        (("-n", "5", "-b", "0"), "found -b"),
        (("5",), "found 5"),
        (("-x", "5"), "unknown option -x"),
        (("--help", "1"), "unknown option --help"),
        (("-e",), "found -e"),
        (("-e", "sysenter", "-n", "5"), "no system call entry sysenter"),
        (("-e", "nonsense", "-c", "5"), "no system call entry nonsense"),
        (("-e", "", "-c", "5"), "no system call entry "),
    ],
)
def test_a_wrong_command_line_is_refused(program: Path, arguments: tuple[str, ...], complaint: str) -> None:
    ended = gtodbench(program, *arguments)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith("callbench: ")
    assert complaint in ended.stderr


@ON_X86_64
def test_untimed_calls_are_described(program: Path) -> None:
    with subprocess.Popen([program, "-c", "5000"], stdout=subprocess.PIPE, text=True) as running:
        output, _ = running.communicate(timeout=600)
    assert running.returncode == 0
    called = parse_called(output, 5000)
    assert (called.entry, called.calls, called.pids) == ("syscall", 5000, frozenset({running.pid}))
    assert (called.arguments[1:], called.number, called.result) == ((0,) * 5, 96, 0)
    assert called.arguments[0] > 0


@ON_X86_64
def test_the_program_tells_which_bytes_it_executes(program: Path) -> None:
    content = program.read_bytes()
    *_, mapped = (line for line in readelf(program) if " E " in line)
    offset = int(mapped.split()[1], 16)
    ended = gtodbench(program, "-c", "5", "-l", f"{offset + 3}:{program}")
    calls, live = ended.stdout.rstrip().rsplit("\n", 1)
    assert parse_called(calls, 5).calls == 5
    assert live == f"live {content[offset + 3 : offset + 19].hex()}"
    for place in (f"{offset}:/bin/sh", f"999999999:{program}", "nowhere"):
        ended = gtodbench(program, "-c", "5", "-l", place)
        assert (ended.returncode, "the program has not mapped " in ended.stderr) == (2, True)


def readelf(program: Path) -> list[str]:
    """The loaded segments: type, offset, ..., flags."""
    words = ["readelf", "--segments", "--wide", str(program)]
    said = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    return [line for line in said.splitlines() if line.strip().startswith("LOAD")]


@ON_X86_64
def test_the_32_bit_entry_has_a_number_of_its_own(program: Path) -> None:
    ended = gtodbench(program, "-e", "int80", "-c", "1")
    if ended.returncode < 0:
        pytest.skip("this host's kernel takes no 32-bit system calls")
    assert parse_called(ended.stdout, 1).number == 78


@ON_X86_64
def test_samples_are_what_the_lab_reads(program: Path) -> None:
    ended = undisturbed(program, "-e", "syscall", "-n", "25", "-b", "10", "-r", "3")
    assert (ended.returncode, ended.stderr) == (0, "")
    measured = parse(ended.stdout, Sampling(25, 10, 3, 25))
    assert measured.entry == "syscall"
    assert measured.batches == 9
    assert min(measured.samples) > 0
    assert measured.outcome is not None
    assert measured.outcome.untimed.observed == 25


@ON_X86_64
def test_calls_behind_the_samples_may_be_left_out(program: Path) -> None:
    ended = undisturbed(program, "-e", "syscall", "-n", "25", "-b", "1", "-u", "0")
    measured = parse(ended.stdout, Sampling(25, 1, 1))
    assert measured.outcome is not None
    assert (measured.outcome.timed.observed, measured.outcome.untimed.observed) == (26, 0)


@ON_X86_64
def test_seconds_of_the_2005_document(program: Path) -> None:
    ended = gtodbench(program, "-s", "1")
    assert (ended.returncode, ended.stderr) == (0, "")
    match = re.fullmatch(r"entry syscall\nrun 0 calls=(\d+) ns=(\d+) average=(\d+)\n", ended.stdout)
    assert match is not None
    calls, spent, average = map(int, match.groups())
    assert calls % 1000 == 0
    assert spent >= 1_000_000_000
    assert average == spent // calls


@pytest.fixture(scope="module")
def macrobench(program: Path) -> Path:
    return program.with_name("macrobench")


@ON_X86_64
@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((), "expected [-o FILE] [-e FILE] ROOT PROGRAM"),
        (("/",), "expected [-o FILE]"),
        (("-o", "/dev/null", "/"), "expected [-o FILE]"),
        (("-x", "1", "/", "true"), "unknown option -x"),
        (("-a", "/nonexistent", "/"), "cannot open /nonexistent"),
        (("-a", "/dev/null", "/"), "there are no arguments, or too long ones, in /dev/null"),
        (("-a", "/dev/zero", "/"), "there are no arguments, or too long ones, in /dev/zero"),
    ],
)
def test_a_wrong_command_line_for_whole_programs_is_refused(
    macrobench: Path, arguments: tuple[str, ...], complaint: str
) -> None:
    ended = subprocess.run([macrobench, *arguments], check=False, capture_output=True, text=True, timeout=600)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith("macrobench: ")
    assert complaint in ended.stderr


@ON_X86_64
@AS_ROOT
def test_a_whole_program_is_timed_with_what_it_starts(macrobench: Path, tmp_path: Path) -> None:
    script = 'echo "$1"; pwd; echo no >&2; i=0; while [ $i -lt 200000 ]; do i=$((i + 1)); done & sleep 0.1; wait'
    words = tmp_path / "words"
    words.write_bytes(b"".join(word.encode() + b"\0" for word in ("sh", "-c", script, "sh", "a  *\n$x")))
    output, errors = tmp_path / "output", tmp_path / "errors"
    argv = [str(path) for path in (macrobench, "-o", output, "-e", errors, "-a", words, "/")]
    info = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=600).stdout
    assert (output.read_text(), errors.read_text()) == ("a  *\n$x\n/\n", "no\n")
    names = ("real", "user", "system", "minor", "major", "switches", "tsc")
    match = re.fullmatch("run " + " ".join(rf"{name}=(\d+)" for name in names) + "\n", info)
    assert match is not None
    real, user, system, minor, _, switches, _ = map(int, match.groups())
    assert real >= 100_000_000
    assert user + system > 10_000_000  # most of it in a child of the program's
    assert minor > 50
    assert switches >= 2


@ON_X86_64
@AS_ROOT
@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        (("sh", "-c", "exit 3"), "macrobench: the program ended with status 3\n"),
        (("sh", "-c", "kill -9 $$"), "macrobench: the program was ended by signal 9\n"),
        (
            ("no-such-program",),
            "macrobench: cannot execute no-such-program\nmacrobench: the program ended with status 127",
        ),
    ],
)
def test_a_whole_program_that_fails_has_no_figures(macrobench: Path, command: tuple[str, ...], complaint: str) -> None:
    ended = subprocess.run([macrobench, "/", *command], check=False, capture_output=True, text=True, timeout=600)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert complaint in ended.stderr
