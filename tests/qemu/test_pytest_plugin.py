# SPDX-License-Identifier: GPL-2.0-only
"""Does the pytest plugin give each test the guest it asks for, and give a clear reason when it cannot?"""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import qemus_in

pytest_plugins = ["pytester"]

SKIPPED = "boots a guest in QEMU; pytest --qemu runs it"
HEAVY = {"jinja2", "pydantic", "qemu", "rich", "typer", "yaml"}


def test_without_the_option_nothing_heavy_is_imported(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        """
        import sys
        def pytest_unconfigure():
            print("imported:", *sorted({name.partition(".")[0] for name in sys.modules}))
            print("of the lab:", *sorted(name for name in sys.modules if name.startswith("orchestrator")))
        """
    )
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.guest(kernel=["debian-686", "lab-i386-up"], cpu="pentium4")
        def test_with_guests(guest, kmod): raise AssertionError
        def test_without(): pass
        """
    )
    result = pytester.runpytest_subprocess("-p", "no:hypothesispytest")
    result.assert_outcomes(passed=1, skipped=2)
    lines = dict(line.split(":", 1) for line in result.outlines if line.startswith(("imported:", "of the lab:")))
    assert set(lines["imported"].split()) & HEAVY == set()
    own = (
        "orchestrator",
        *(
            f"orchestrator.pytest_plugin{part}"
            for part in ("", ".failed_tests", ".fixtures", ".mark_choices", ".result_reports", ".session")
        ),
    )
    assert set(lines["of the lab"].split()) == set(own)


def test_without_the_option_qemu_tests_are_skipped_with_a_reason(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        def test_with_the_fixture(guest): raise AssertionError
        @pytest.mark.guest(cpu="nonsense")
        def test_with_a_marker_that_is_not_read(guest): raise AssertionError
        @pytest.mark.qemu
        def test_with_guests_of_its_own(): raise AssertionError
        def test_without(): pass
        """
    )
    result = pytester.runpytest_inprocess("-rs", "--strict-markers")
    result.assert_outcomes(passed=1, skipped=3)
    assert SKIPPED in result.stdout.str()


WRONG = {
    "cpu='pentum4'": "cpu: found 'pentum4'; allowed: pentium4, athlon, *; did you mean 'pentium4'[?]",
    "kernel='debian-868'": "unknown kernel 'debian-868'; allowed: *; did you mean 'debian-686'[?]",
    "timing='instruction'": "timing: found 'instruction'; allowed: *; did you mean 'instructions'[?]",
    "mem='1G'": "unknown argument 'mem'; allowed: kernel, cpu, smp, memory, timing, *",
    "memory=8": "memory: found 8; expected a size from 64M to 4G, such as 256M or 1G*",
    "smp=0": "smp: found 0; expected a whole number from 1 to 16",
    "smp=2, timing='instructions'": "smp: found 2; timing 'instructions' needs 1: *",
    "fresh='no'": "fresh: found 'no'; expected True or False",
    "kernel_modules='dummy'": "kernel_modules: found 'dummy'; expected True or False",
    "channel='telnet'": "channel: found 'telnet'; allowed: framed, ssh, serial",
    "allow_oops=5": "allow_oops: found 5; expected a regular expression, or a list of them",
    "allow_oops='('": "allow_oops: '(' is not a regular expression: *",
    "channel='ssh'": "channel 'ssh' needs an image: *",
    "image='debian-i368'": "unknown image 'debian-i368'; allowed: *; did you mean 'debian-i386'[?]",
    "image=5": "image: found 5; expected an image's name, or a path",
    "data='./src'": "data: found './src'; expected a list of folders, such as *",
    "'pentium4'": "arguments are given by name",
    "kernel='debian-amd64', cpu='athlon'": "kernel 'debian-amd64' is 64-bit and CPU 'athlon' is 32-bit",
}


@pytest.mark.qemu
def test_wrong_markers_are_bad_usage_all_at_once(pytester: pytest.Pytester) -> None:
    tests = (f"@pytest.mark.guest({arguments})\ndef test_{n}(guest): pass" for n, arguments in enumerate(WRONG))
    pytester.makepyfile("\n".join(["import pytest", *tests, "def test_right(): pass"]))
    result = pytester.runpytest_inprocess("--qemu")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        [f"ERROR: *::test_{n}: mark guest: {sentence}" for n, sentence in enumerate(WRONG.values())]
    )
    assert "Traceback" not in result.stderr.str() + result.stdout.str()
    assert "test_right" not in result.stderr.str()


def test_what_the_host_lacks_is_a_sentence(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    pytester.makepyfile("def test_it(guest): pass")
    monkeypatch.setenv("PATH", "/nonexistent")
    result = pytester.runpytest_inprocess("--qemu")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["HostError: * is not installed", "hint: *"])
    assert "Traceback" not in result.stdout.str()


@pytest.mark.qemu
def test_a_shared_guest_is_shared_while_it_is_sound(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import os, signal
        import pytest

        pytestmark = pytest.mark.guest(kernel="lab-i386-up", timing="tcg", memory="128M")

        def traces(guest):
            return guest.run(["ls", "/tmp"]).text.split()

        def test_the_first_leaves_a_trace(shared_guest):
            assert shared_guest.machine.memory_mib == 128
            shared_guest.put(b"", "/tmp/trace")

        def test_the_second_has_the_same_guest(shared_guest):
            assert traces(shared_guest) == ["trace"]

        def test_a_clean_guest_has_no_trace(guest):
            assert traces(guest) == []
            guest.put(b"", "/tmp/trace")

        def test_nor_has_the_next(guest):
            assert traces(guest) == []

        @pytest.mark.guest(fresh=True)
        def test_a_fresh_guest_has_no_trace(guest):
            assert traces(guest) == []
            assert guest.machine.memory_mib == 128

        def test_the_shared_guest_is_still_there_and_its_test_fails(shared_guest):
            guest = shared_guest
            assert traces(guest) == ["trace"]
            guest.run(["sh", "-c", "echo last words > /dev/console"])
            raise AssertionError("on purpose")

        def test_after_a_failure_the_guest_is_another_and_a_death_fails(shared_guest):
            guest = shared_guest
            assert traces(guest) == []
            guest.put(b"", "/tmp/trace")
            os.kill(guest.pid, signal.SIGKILL)

        def test_after_its_death_too(shared_guest):
            guest = shared_guest
            assert traces(guest) == []
        """
    )
    result = pytester.runpytest_inprocess("--qemu", "-v")
    result.assert_outcomes(passed=6, failed=2)
    result.stdout.fnmatch_lines(
        [
            "*on purpose*",
            "*Last steps of *test_the_shared_guest_is_still0/lab.log*",
            "*  run ls /tmp (* s, status 0)",
            "*Console during the test, the end of *guest1-pentium4.console*",
            "last words",
            "*QEMU ended (signal 9) *",
        ],
        consecutive=False,
    )
    first = next(pytester.path.parent.rglob("test_the_first_leaves_a_trace0/lab.log"))
    assert "  restore guest1-pentium4 on pentium4 (" in first.read_text()
    assert qemus_in(pytester.path) == []


@pytest.mark.qemu
@pytest.mark.kernels("lab-i386-up")
@pytest.mark.nightly("four guests; test_plugin_failures.py has such tests every day, by the other mark")
def test_a_test_whose_guest_oopsed_is_not_green(pytester: pytest.Pytester, late_oops: Path) -> None:
    pytester.makepyfile(
        f"""
        import pytest
        from orchestrator.probes.loading import load
        from pathlib import Path

        pytestmark = pytest.mark.guest(kernel="lab-i386-up", cpu="athlon", timing="tcg")

        def oops(guest):
            load(guest, "late_oops", Path({str(late_oops)!r}))
            guest.wait_until_succeeds(["sh", "-c", "dmesg | grep -q ' end trace.*' && dmesg | grep -q Oops:"])

        def test_nothing_is_expected(guest): oops(guest)
        @pytest.mark.allow_oops("WARNING: CPU")
        def test_the_warning_is_expected(guest): oops(guest)
        @pytest.mark.allow_oops("WARNING: CPU", "NULL pointer dereference")
        def test_both_are_expected(guest): oops(guest)
        def test_the_next_guest_is_another(guest):
            assert "late_oops" not in guest.succeed(["dmesg"]).text
        """
    )
    result = pytester.runpytest_inprocess("--qemu", "-v", "--strict-markers")
    result.assert_outcomes(passed=2, failed=2)
    result.stdout.fnmatch_lines(
        [
            "*::test_nothing_is_expected FAILED*",
            "*::test_the_warning_is_expected FAILED*",
            "GuestOops: the guest's kernel reported trouble (warning in late_oops_init *, oops in die *)",
            "GuestOops: the guest's kernel reported trouble (oops in die *)",
        ]
    )


@pytest.mark.qemu
@pytest.mark.kernels("lab-i386-up")
def test_what_one_test_expects_the_next_does_not(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest
        from orchestrator.errors import GuestOops

        pytestmark = pytest.mark.guest(kernel="lab-i386-up", cpu="athlon", timing="tcg")

        @pytest.mark.allow_oops("BUG: ")
        def test_one(guest): guest.succeed(["true"])
        @pytest.mark.allow_oops("BUG: of nobody")
        def test_next(guest):
            guest.succeed(["sh", "-c", "echo '<1>BUG: of nobody' >/dev/kmsg"])
            guest.drain_console()
            with pytest.raises(GuestOops):
                guest.check_console()
        """
    )
    pytester.runpytest_inprocess("--qemu", "--strict-markers").assert_outcomes(passed=2)


@pytest.mark.qemu
def test_wrong_expressions_are_bad_usage(pytester: pytest.Pytester) -> None:
    marks = ("", "'('", "5", "regex='x'", "''")
    tests = (f"@pytest.mark.allow_oops({mark})\ndef test_{n}(guest): pass" for n, mark in enumerate(marks))
    pytester.makepyfile("\n".join(["import pytest", "pytestmark = pytest.mark.guest()", *tests]))
    result = pytester.runpytest_inprocess("--qemu")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        [
            "ERROR: *::test_0: mark allow_oops: regular expressions are expected",
            "ERROR: *::test_1: mark allow_oops: '(' is not a regular expression: *",
            "ERROR: *::test_2: mark allow_oops: 5 is not a regular expression: *",
            "ERROR: *::test_3: mark allow_oops: regular expressions are expected",
            "ERROR: *::test_4: mark allow_oops: '' would allow every report",
        ]
    )


STYLES = """
import asyncio, unittest
import pytest

@pytest.fixture(params=["shared_guest", "fixture"])
def one_of_them(request):
    return request.getfixturevalue("shared_guest" if request.param == "shared_guest" else "mine")

@pytest.fixture
def mine(shared_guest):
    shared_guest.succeed(["mkdir", "-p", "/tmp/mine"])
    yield shared_guest
    shared_guest.succeed(["rm", "-r", "/tmp/mine"])

def test_a_fixture_by_its_name(one_of_them):
    one_of_them.succeed(["true"])

@pytest.fixture
def marked(request):
    request.node.add_marker(pytest.mark.guest(memory="128M"))

def test_a_mark_of_a_fixture_s(marked, request):
    total = request.getfixturevalue("shared_guest").succeed(["grep", "MemTotal", "/proc/meminfo"]).text
    assert int(total.split()[1]) < 128 << 10

def test_a_wrong_mark_of_a_fixture_s(request):
    request.node.add_marker(pytest.mark.guest(smp=0))
    request.getfixturevalue("shared_guest")

@pytest.mark.guest(smp=1)
class InCase(unittest.TestCase):
    @pytest.fixture(autouse=True)
    def take(self, shared_guest):
        self.guest = shared_guest

    def test_words(self):
        for word in "ab":
            with self.subTest(word=word):
                self.assertEqual(self.guest.succeed(["echo", word]).text, word + "\\n")

    def test_marks_of_a_base_class_are_inherited(self):
        self.guest.succeed(["true"])

class InAnother(InCase):
    def test_words(self):
        self.skipTest("as the base has it")

class Waiting(unittest.IsolatedAsyncioTestCase):
    @pytest.fixture(autouse=True)
    def take(self, shared_guest):
        self.guest = shared_guest

    async def test_it(self):
        await asyncio.sleep(0)
        self.guest.succeed(["true"])

class WithASubtest(unittest.TestCase):
    @pytest.fixture(autouse=True)
    def take(self, shared_guest):
        self.guest = shared_guest

    def test_it(self):
        with self.subTest(number=1):
            self.guest.succeed(["false"])

@pytest.mark.parametrize("cpu", ["pentium4", pytest.param("athlon", marks=pytest.mark.guest(smp=1))])
def test_parameters(shared_guest, cpu):
    shared_guest.succeed(["echo", cpu])
"""


@pytest.mark.qemu
@pytest.mark.parametrize("options", [(), ("--import-mode=importlib",)], ids=["usual", "importlib"])
def test_tests_in_other_styles_have_guests(pytester: pytest.Pytester, options: tuple[str, ...]) -> None:
    pytester.makeini("[pytest]\nqemu_kernel = lab-i386-up\nqemu_timing = tcg\n")
    pytester.makepyfile(test_styles=STYLES)
    result = pytester.runpytest_inprocess("--qemu", "-p", "no:xdist", *options)
    result.assert_outcomes(passed=10, skipped=1, failed=2)
    assert "orchestrator/guest/" not in result.stdout.str()  # the subtest's own frames alone
    result.stdout.fnmatch_lines(
        ["*test_a_wrong_mark_of_a_fixture_s: mark guest: smp: found 0; expected a whole number*"]
    )
