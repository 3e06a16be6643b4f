# SPDX-License-Identifier: GPL-2.0-only
"""Do the kernel's own samples and tests run in a guest, with a result for each: samples/kprobes, ftracetest, KUnit?

One of each kind runs every day, all of ftracetest every night, and those of Linux 7.3 on 7.3.
"""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest
from documentation import ROOT, write_files
from elsewhere import ELSEWHERE

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.kernel_source import kernel_source
from orchestrator.artifacts.ready_kernels import Kernel
from orchestrator.errors import UnsupportedError, UsageError
from orchestrator.guest.guest import Guest
from orchestrator.guest.kernel_tests import program_results
from orchestrator.library.tested_guest import KernelModules, TestedGuest
from orchestrator.pytest_plugin.ktap_tests import KernelTests

pytest_plugins = ["pytester"]

PAGE = ROOT / "docs" / "kernel-tests.md"
SAMPLES = {"CONFIG_SAMPLE_KPROBES": "m", "CONFIG_SAMPLE_KRETPROBES": "m"}
"""What makes the modules in their Makefile."""

TRACE_PRINTK = {"CONFIG_SAMPLE_TRACE_PRINTK": "m"}

WITH_KUNIT = "lab-i386-up-kunit"
ON_DEBIAN = pytest.mark.guest(kernel="debian-686", image="debian-i386")
ON_7_3 = pytest.mark.guest(kernel="debian-amd64@7.3", image="debian-amd64")
ALL_CASES_LIMIT = 7200.0
"""Host seconds for all of the 117 tests of ftracetest, which take ten minutes."""

RUNNER = Path(__file__).with_name("kselftest")
CRASH = (
    "echo TAP version 13; echo 1..2; echo ok 1 before; sleep 1; echo c >/proc/sysrq-trigger; sleep 60; echo ok 2 after"
)


@pytest.fixture
def linux(workshop: BuildContext, guest_kernel: Kernel) -> Path:
    """The source of the guest's version of Linux."""
    return kernel_source(workshop, f"linux-source-{guest_kernel.spec.version}").path / "linux"


def put_folder(guest: Guest, folder: Path, target: str) -> None:
    """Copy a folder's files into a folder of the guest."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.add(folder, arcname=".")
    guest.put(packed.getvalue(), "/tmp/folder.tar")
    guest.succeed(["mkdir", "-p", target])
    guest.succeed(["tar", "-xf", "/tmp/folder.tar", "-C", target])


def offer_sample(guest: TestedGuest, folder: Path, name: str, values: dict[str, str]) -> None:
    """Have modprobe find a sample module that tests of ftrace load; no package of Debian's has it."""
    module = guest.load(folder, name=name.replace("-", "_"), values=values)
    guest.unload(module)
    release = guest.succeed(["uname", "-r"]).text.strip()
    guest.succeed(["mkdir", "-p", f"/lib/modules/{release}"])
    guest.put(module.file, f"/lib/modules/{release}/{name}.ko")
    guest.succeed(["depmod", release])


# --- samples/kprobes -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "parameters", "planted", "hit"),
    [
        ("kprobe_example", {"symbol": "do_nanosleep"}, "Planted kprobe at ", "<do_nanosleep> p->addr = "),
        (
            "kretprobe_example",
            {"func": "do_nanosleep"},
            "Planted return probe at do_nanosleep",
            "do_nanosleep returned 0 ",
        ),
    ],
    ids=["kprobe", "kretprobe"],
)
@pytest.mark.parametrize(
    "kernel",
    [
        pytest.param("lab-i386-up", marks=pytest.mark.guest(kernel="lab-i386-up")),
        pytest.param("debian-686", marks=[pytest.mark.guest(kernel="debian-686"), ELSEWHERE]),
        pytest.param("debian-amd64@7.3", marks=[pytest.mark.guest(kernel="debian-amd64@7.3"), ELSEWHERE]),
    ],
)
@pytest.mark.usefixtures("kernel")
def test_a_sample_is_hit(
    guest: TestedGuest, kmod: KernelModules, linux: Path, name: str, parameters: dict[str, str], planted: str, hit: str
) -> None:
    module = kmod(linux / "samples/kprobes", parameters, name=name, values=SAMPLES)
    guest.succeed(["sleep", "0.1"])
    guest.unload(module)
    log = guest.dmesg()
    assert log.index(planted) < log.index(hit) < log.index("unregistered")


# --- tools/testing/selftests ---------------------------------------------------------------------


@ON_DEBIAN
def test_selftests_of_kprobe_events(guest: TestedGuest, linux: Path, ktap: KernelTests) -> None:
    """One that passes, one that fails as expected, and one that needs a module."""
    put_folder(guest, linux / "tools/testing/selftests/ftrace", "/root/ftrace")
    offer_sample(guest, linux / "samples/trace_printk", "trace-printk", TRACE_PRINTK)
    cases = (f"test.d/kprobe/{name}.tc" for name in ("add_and_remove", "kprobe_args_symbol", "kprobe_module"))
    no_symbol = {"Kprobe event symbol argument": "Debian's kernels have no CONFIG_KALLSYMS_ALL"}
    ktap.ftracetest(guest, "/root/ftrace", *cases, expected=no_symbol)


@pytest.mark.guest(kernel="debian-amd64", image="debian-amd64")
@pytest.mark.nightly("i386 has no direct calls, and another image of Debian is needed for this alone")
def test_selftests_of_direct_calls(guest: TestedGuest, linux: Path, ktap: KernelTests) -> None:
    put_folder(guest, linux / "tools/testing/selftests/ftrace", "/root/ftrace")
    for name in ("ftrace-direct", "ftrace-direct-too"):
        offer_sample(guest, linux / "samples/ftrace", name, {"CONFIG_SAMPLE_FTRACE_DIRECT": "m"})
    ktap.ftracetest(guest, "/root/ftrace", "test.d/direct")


@ON_7_3
@pytest.mark.nightly("another kernel and image of Debian, and the source of another version")
def test_selftests_of_probes_on_linux_7_3(guest: TestedGuest, linux: Path, ktap: KernelTests) -> None:
    put_folder(guest, linux / "tools/testing/selftests/ftrace", "/root/ftrace")
    offer_sample(guest, linux / "samples/trace_printk", "trace-printk", TRACE_PRINTK)
    for name in ("ftrace-direct", "ftrace-direct-too"):
        offer_sample(guest, linux / "samples/ftrace", name, {"CONFIG_SAMPLE_FTRACE_DIRECT": "m"})
    ktap.ftracetest(guest, "/root/ftrace", "test.d/kprobe", "test.d/direct", time_limit=ALL_CASES_LIMIT)


@ON_DEBIAN
@pytest.mark.nightly("all tests of ftrace take ten minutes")
def test_all_selftests_of_ftrace(guest: TestedGuest, linux: Path, ktap: KernelTests) -> None:
    put_folder(guest, linux / "tools/testing/selftests/ftrace", "/root/ftrace")
    offer_sample(guest, linux / "samples/trace_printk", "trace-printk", TRACE_PRINTK)
    ktap.ftracetest(guest, "/root/ftrace", expected="ftracetest_failures.yaml", time_limit=ALL_CASES_LIMIT)


@pytest.mark.parametrize(
    "kernel",
    [
        pytest.param(
            "lab-i386-up", marks=[pytest.mark.kernels("lab-i386-up"), pytest.mark.guest(kernel="lab-i386-up")]
        ),
        pytest.param("debian-amd64@7.3", marks=[pytest.mark.guest(kernel="debian-amd64@7.3"), ELSEWHERE]),
    ],
)
@pytest.mark.usefixtures("kernel")
def test_programs_below_the_runner_of_kselftest(guest: TestedGuest, linux: Path, ktap: KernelTests) -> None:
    selftests = linux / "tools/testing/selftests"
    put_folder(guest, RUNNER, "/tmp/selftests/demo")
    put_folder(guest, selftests / "kselftest", "/tmp/selftests/kselftest")
    guest.put(selftests / "run_kselftest.sh", "/tmp/selftests/run_kselftest.sh", mode=0o755)
    programs = "".join(f"demo:{name}.sh\n" for name in ("nested", "absent", "silent"))
    guest.put(programs.encode(), "/tmp/selftests/kselftest-list.txt")
    run = program_results(guest, ["/tmp/selftests/run_kselftest.sh", "-c", "demo"], time_limit=60.0)
    assert {result.name: str(result.outcome) for result in run.results} == {
        "selftests: demo: nested.sh/first": "passed",
        "selftests: demo: nested.sh/second": "failed",
        "selftests: demo: absent.sh": "skipped",
        "selftests: demo: silent.sh": "passed",
    }
    ktap.report(run, expected={"selftests: demo: nested.sh/second": "made to fail"})


@pytest.mark.kernels("lab-i386-up")
@pytest.mark.guest(kernel="lab-i386-up")
@pytest.mark.allow_oops("sysrq triggered crash")
def test_a_guest_that_dies_leaves_the_results_until_then(guest: TestedGuest) -> None:
    run = program_results(guest, ["sh", "-c", CRASH], time_limit=60.0)
    assert [result.name for result in run.results] == ["before"]
    assert run.problems[0].startswith("it did not finish: ")
    assert "sysrq triggered crash" in run.problems[0]
    assert run.problems[1] == "the output: planned 2 tests, found 1 result"


@pytest.mark.kernels("lab-i386-up")
@pytest.mark.guest(kernel="lab-i386-up")
def test_the_status_of_a_program_counts(shared_guest: TestedGuest) -> None:
    skipped = program_results(shared_guest, ["sh", "-c", "echo not here >&2; exit 4"], time_limit=60.0)
    assert [(result.name, result.outcome, result.reason) for result in skipped.results] == [
        ("all", "skipped", "not here")
    ]
    script = ["sh", "-c", "echo 1..1; echo ok 1 a; echo no memory >&2; exit 3"]
    (problem,) = program_results(shared_guest, script, time_limit=60.0).problems
    assert problem == f"`{' '.join(script)}` ended with status 3, and no test failed\n    no memory"


# --- KUnit ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kernel",
    [
        pytest.param(WITH_KUNIT, marks=[pytest.mark.kernels(WITH_KUNIT), pytest.mark.guest(kernel=WITH_KUNIT)]),
        pytest.param(
            f"{WITH_KUNIT}@7.3",
            marks=[pytest.mark.kernels(f"{WITH_KUNIT}@7.3"), pytest.mark.guest(kernel=f"{WITH_KUNIT}@7.3"), ELSEWHERE],
        ),
    ],
)
@pytest.mark.usefixtures("kernel")
def test_kunit_of_kprobes(guest: TestedGuest, ktap: KernelTests) -> None:
    ktap.kunit(guest, "kprobes_test")
    names = {result.name for result in guest.ktap("kprobes_test").results}
    assert {"kprobes_test/test_kprobe", "kprobes_test/test_kretprobe"} <= names


@pytest.mark.kernels(WITH_KUNIT)
@pytest.mark.guest(kernel=WITH_KUNIT)
def test_all_of_kunit_and_a_module_of_it(
    guest: TestedGuest, kmod: KernelModules, linux: Path, ktap: KernelTests
) -> None:
    with pytest.raises(UsageError, match="no suite 'example' of KUnit has run"):
        guest.ktap("example")
    kmod(linux / "lib/kunit/kunit-example-test.c")
    ktap.kunit(guest)
    suites = {result.name.partition("/")[0] for result in guest.ktap().results}
    assert suites == {"kprobes_test", "list-kunit-test", "hlist", "example"}


@pytest.mark.qemu
@pytest.mark.kernels(WITH_KUNIT)
def test_the_example_of_the_page(pytester: pytest.Pytester) -> None:
    write_files(PAGE, pytester.path)
    result = pytester.runpytest_subprocess("--qemu", "-v", "-ra", "--strict-markers")
    result.assert_outcomes(passed=9, xfailed=1)
    result.stdout.fnmatch_lines(
        [
            "test_mine.py::test_counter PASSED*",
            "test_mine.py::test_counter[[]counter/counts_up] PASSED*",
            "test_mine.py::test_counter[[]counter/wraps] XFAIL*",
            "test_mine.py::test_kprobes[[]kprobes_test/test_kretprobe] PASSED*",
            "XFAIL test_mine.py::test_counter[[]counter/wraps] - the counter has 32 bits on i386",
        ]
    )


@pytest.mark.kernels("lab-i386-up")
@pytest.mark.guest(kernel="lab-i386-up")
def test_a_kernel_without_kunit(shared_guest: TestedGuest) -> None:
    with pytest.raises(UnsupportedError, match="shows no results of KUnit"):
        shared_guest.ktap()
