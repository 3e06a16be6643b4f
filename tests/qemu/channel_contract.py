# SPDX-License-Identifier: GPL-2.0-only
"""What every channel into a guest has to do; the tests of each channel inherit it, with a marker for the guest."""

from __future__ import annotations

import os
import random
import resource
import signal
from pathlib import Path

import pytest

from orchestrator.errors import CommandFailed, CommandTimeout, GuestError, GuestExit, GuestPanic
from orchestrator.guest.channel import Stream
from orchestrator.guest.guest import Guest

MEGABYTE = 1 << 20
EVERY_BYTE = bytes(range(256))
SHOWN = 'printf "%s|" "$#" "$@"'
STILL_THERE = 'read -r _ _ state _ <"/proc/$1/stat" && [ "$state" != Z ]'


def is_running(guest: Guest, process: str) -> bool:
    """Whether a process of the guest lives; a zombie does not."""
    return guest.run(["sh", "-c", STILL_THERE, "sh", process]).status == 0


class _Amounts:
    """What counts as large or long; a slow channel has other amounts."""

    LARGE = 4 * MEGABYTE
    TRANSFER_LIMIT = 60.0
    SHORT_LIMIT = 1.0
    """Seconds in which a command's first output has surely arrived."""


class ChannelContract(_Amounts):
    """What each channel is tried for every day."""

    # --- commands ---------------------------------------------------------------------------------

    def test_status_and_both_streams_come_apart(self, shared_guest: Guest) -> None:
        result = shared_guest.run(["sh", "-c", "echo out; echo err >&2; echo more; exit 3"])
        assert (result.status, result.stdout, result.stderr) == (3, b"out\nmore\n", b"err\n")
        assert result.argv == ("sh", "-c", "echo out; echo err >&2; echo more; exit 3")

    @pytest.mark.parametrize(("name", "status"), [("KILL", 137), ("TERM", 143)])
    def test_a_signal_to_its_whole_group_is_the_commands_alone(
        self, shared_guest: Guest, name: str, status: int
    ) -> None:
        assert shared_guest.run(["sh", "-c", f"kill -{name} 0"], time_limit=20).status == status
        assert shared_guest.run(["echo", "alive"]).text == "alive\n"

    def test_a_program_that_is_not_there(self, shared_guest: Guest) -> None:
        result = shared_guest.run(["nonesuch", "argument"])
        assert (result.status, result.stdout) == (127, b"")
        assert b"nonesuch" in result.stderr

    @pytest.mark.parametrize(
        "arguments",
        [
            ["", " ", "two words", "a\nb\n", "'\"$HOME`id`\\", "Grüße, 日本語", "-n", "\x01\x7f"],
            ["x" * 60_000],
            ["'" * 60_000],
        ],
        ids=["short", "long", "long-quotes"],
    )
    def test_arguments_arrive_as_they_are(self, shared_guest: Guest, arguments: list[str]) -> None:
        result = shared_guest.run(["sh", "-c", SHOWN, "sh", *arguments, "end"])
        assert result.stdout.decode() == "|".join([str(len(arguments) + 1), *arguments, "end", ""])

    # --- output -----------------------------------------------------------------------------------

    def test_binary_output_is_untouched(self, shared_guest: Guest) -> None:
        content = EVERY_BYTE * 100
        shared_guest.put(content, "/tmp/binary")
        result = shared_guest.run(["sh", "-c", "cat /tmp/binary; cat /tmp/binary >&2"])
        assert result.stdout == content
        assert result.stderr == content

    # --- time limits ------------------------------------------------------------------------------

    def test_a_command_that_takes_too_long_is_killed_with_its_children(self, shared_guest: Guest) -> None:
        with pytest.raises(CommandTimeout) as timeout:
            shared_guest.run(["sh", "-c", "sleep 333 & echo $!; sleep 333"], time_limit=self.SHORT_LIMIT)
        assert timeout.value.what == f"sh did not end within {self.SHORT_LIMIT:g} s and was killed"
        (child,) = timeout.value.detail
        assert not is_running(shared_guest, child)
        assert shared_guest.run(["echo", "alive"]).text == "alive\n"

    # --- files ------------------------------------------------------------------------------------

    def test_a_large_file_comes_back_as_it_went(self, shared_guest: Guest) -> None:
        content = random.Random(0).randbytes(self.LARGE)
        shared_guest.put(content, "/tmp/large", time_limit=self.TRANSFER_LIMIT)
        assert shared_guest.get("/tmp/large", time_limit=self.TRANSFER_LIMIT) == content
        shared_guest.succeed(["rm", "/tmp/large"])

    def test_a_file_that_cannot_be_written(self, shared_guest: Guest) -> None:
        for target, reason in (
            ("/nonesuch/file", "cannot write /nonesuch/file: no such file or directory"),
            ("/tmp", "cannot write /tmp: is a directory"),
            ("/dev/full", "cannot write /dev/full: no space left on device"),
            ("relative", "'relative' is not an absolute path in the guest"),
        ):
            with pytest.raises(GuestError) as refused:
                shared_guest.put(EVERY_BYTE * 1024, target)
            assert refused.value.what == reason
        assert shared_guest.run(["true"]).status == 0

    def test_a_file_that_cannot_be_read(self, shared_guest: Guest) -> None:
        for source, reason in (
            ("/tmp/nonesuch", "cannot read /tmp/nonesuch: no such file or directory"),
            ("/tmp", "cannot read /tmp: is a directory"),
            ("/tmp/a\0b", r"'/tmp/a\x00b' is not an absolute path in the guest"),
        ):
            with pytest.raises(GuestError) as refused:
                shared_guest.get(source)
            assert refused.value.what == reason
        assert shared_guest.run(["true"]).status == 0

    def test_a_file_that_is_too_large_or_endless_is_refused(self, shared_guest: Guest) -> None:
        shared_guest.put(bytes(150_000), "/tmp/too-large")
        for source in ("/dev/zero", "/tmp/too-large"):
            with pytest.raises(GuestError, match=f"^cannot read {source}: it has more than 100000 bytes$"):
                shared_guest.get(source, largest=100_000)
        assert shared_guest.get("/tmp/too-large", largest=150_000) == bytes(150_000)
        shared_guest.succeed(["rm", "/tmp/too-large"])

    # --- a dying guest ----------------------------------------------------------------------------

    @pytest.mark.allow_oops("Kernel panic - not syncing: sysrq triggered crash")
    def test_a_panic_is_raised_as_a_panic(self, guest: Guest) -> None:
        pid = guest.pid
        with pytest.raises(GuestPanic, match="panicked in write_sysrq_trigger while running sh: sysrq") as panic:
            guest.run(["sh", "-c", "echo c >/proc/sysrq-trigger; sleep 30"])
        assert any("Kernel panic - not syncing: sysrq triggered crash" in line for line in panic.value.detail)
        assert not Path(f"/proc/{pid}").exists()
        with pytest.raises(GuestPanic, match="panicked in write_sysrq_trigger while reading /etc/passwd"):
            guest.get("/etc/passwd")

    def test_qemus_sudden_death_is_an_exit(self, guest: Guest) -> None:
        assert guest.pid is not None
        os.kill(guest.pid, signal.SIGKILL)
        with pytest.raises(GuestExit, match=r"^[^ ]*: QEMU ended \(signal 9\) while running true"):
            guest.run(["true"])
        assert guest.pid is None


class FurtherContract(_Amounts):
    """The rest, which one channel is tried for every day, and each every night."""

    # --- commands ---------------------------------------------------------------------------------

    @pytest.mark.parametrize(("name", "status"), [("KILL", 137), ("TERM", 143), ("SEGV", 139), ("INT", 130)])
    def test_death_by_signal_is_a_status_as_in_a_shell(self, shared_guest: Guest, name: str, status: int) -> None:
        result = shared_guest.run(["sh", "-c", f"kill -{name} $$"])
        assert (result.status, result.stdout, result.stderr) == (status, b"", b"")

    def test_a_program_that_may_not_be_executed(self, shared_guest: Guest) -> None:
        shared_guest.put(b"#!/bin/sh\n", "/tmp/no-program", mode=0o644)
        result = shared_guest.run(["/tmp/no-program"])
        assert (result.status, result.stdout) == (126, b"")
        assert b"/tmp/no-program" in result.stderr

    def test_a_command_that_has_to_succeed(self, shared_guest: Guest) -> None:
        assert shared_guest.succeed(["echo", "fine"]).text == "fine\n"
        with pytest.raises(CommandFailed, match=r"^`sh -c echo no >&2; exit 5` ended with status 5") as failed:
            shared_guest.succeed(["sh", "-c", "echo no >&2; exit 5"])
        assert failed.value.detail == ("no",)

    def test_a_command_that_has_to_fail(self, shared_guest: Guest) -> None:
        failed = shared_guest.fail(["sh", "-c", "echo no >&2; exit 5"])
        assert (failed.status, failed.stderr) == (5, b"no\n")
        with pytest.raises(CommandFailed, match=r"^`echo fine` ended with status 0 in the guest") as succeeded:
            shared_guest.fail(["echo", "fine"])
        assert succeeded.value.detail == ("fine",)

    def test_a_condition_that_becomes_true_is_waited_for(self, shared_guest: Guest) -> None:
        shared_guest.succeed(["rm", "-f", "/tmp/polls"])
        third = "echo poll >>/tmp/polls; [ $(wc -l </tmp/polls) = 3 ] && echo true"
        assert shared_guest.wait_until_succeeds(["sh", "-c", third]).text == "true\n"

    def test_a_condition_that_stays_false_is_given_up(self, shared_guest: Guest) -> None:
        # On a busy host the last poll may be cut off: what is raised when is for tests/unit/guest/test_guest_verbs.py.
        for false in (["sh", "-c", "echo no >&2; exit 5"], ["sleep", "333"]):
            with pytest.raises((CommandFailed, CommandTimeout)):
                shared_guest.wait_until_succeeds(false, time_limit=self.SHORT_LIMIT)
        assert shared_guest.run(["echo", "alive"]).text == "alive\n"

    def test_standard_input_is_empty(self, shared_guest: Guest) -> None:
        assert shared_guest.run(["cat"], time_limit=10).stdout == b""

    def test_a_command_begins_in_the_root_folder(self, shared_guest: Guest) -> None:
        assert shared_guest.run(["pwd"]).text == "/\n"

    def test_our_own_programs_are_found(self, shared_guest: Guest) -> None:
        assert shared_guest.run(["which", "gtodbench"]).text.endswith("bin/gtodbench\n")

    @pytest.mark.parametrize(
        ("argv", "reason"),
        [
            (["echo", "x" * 70_000], "the command line is longer than 65536 bytes"),
            (["echo", "a\0b"], "a command needs a program and cannot hold NUL characters"),
            ([], "a command needs a program and cannot hold NUL characters"),
        ],
        ids=["long", "nul", "nothing"],
    )
    def test_a_command_line_that_cannot_be(self, shared_guest: Guest, argv: list[str], reason: str) -> None:
        with pytest.raises(GuestError) as refused:
            shared_guest.run(argv)
        assert refused.value.what == reason
        assert shared_guest.run(["true"]).status == 0

    # --- output -----------------------------------------------------------------------------------

    def test_long_output_on_both_streams_is_whole(self, shared_guest: Guest) -> None:
        lines = self.LARGE // 50
        expected = "".join(f"{number}\n" for number in range(1, lines + 1)).encode()
        argv = ["sh", "-c", f"seq 1 {lines} & seq 1 {lines} >&2; wait"]
        result = shared_guest.run(argv, time_limit=self.TRANSFER_LIMIT)
        assert result.stdout == expected
        assert result.stderr == expected

    def test_a_listener_gets_output_as_it_comes(self, shared_guest: Guest) -> None:
        received: list[tuple[Stream, bytes]] = []
        result = shared_guest.run(
            ["sh", "-c", "echo first; sleep 1; echo second >&2; sleep 1; echo third"],
            listener=lambda stream, data: received.append((stream, data)),
        )
        # Output that was collected first would have what belongs to a stream together.
        assert received == [(Stream.STDOUT, b"first\n"), (Stream.STDERR, b"second\n"), (Stream.STDOUT, b"third\n")]
        assert (result.status, result.stdout, result.stderr) == (0, b"", b"")

    def test_a_process_left_behind_with_the_pipe_is_not_waited_for(self, shared_guest: Guest) -> None:
        result = shared_guest.run(["sh", "-c", "sleep 1000 & echo $!"])  # at its time limit it would be killed
        left_behind = result.text.strip()
        assert is_running(shared_guest, left_behind)
        shared_guest.succeed(["sh", "-c", f"kill {left_behind}"])

    # --- time limits ------------------------------------------------------------------------------

    def test_a_time_limit_below_any_run(self, shared_guest: Guest) -> None:
        with pytest.raises(CommandTimeout):
            shared_guest.run(["sleep", "333"], time_limit=0.001)
        assert shared_guest.run(["echo", "alive"]).text == "alive\n"

    def test_a_command_that_prints_for_ever_is_killed_and_fills_nothing(self, shared_guest: Guest) -> None:
        received = 0

        def listener(stream: Stream, data: bytes) -> None:
            nonlocal received
            received += len(data)

        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        free = self.free_memory(shared_guest)
        with pytest.raises(CommandTimeout):
            shared_guest.run(["yes"], time_limit=self.SHORT_LIMIT, listener=listener)
        assert received > 10_000
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024
        assert self.free_memory(shared_guest) > free - 32 * 1024
        assert shared_guest.run(["echo", "alive"]).text == "alive\n"

    def free_memory(self, guest: Guest) -> int:
        """KiB that the guest could give to a program."""
        lines = guest.get("/proc/meminfo").decode().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))

    # --- files ------------------------------------------------------------------------------------

    @pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 65_537])
    def test_a_file_comes_back_as_it_went(self, shared_guest: Guest, tmp_path: Path, size: int) -> None:
        content = random.Random(size).randbytes(size)
        source = tmp_path / "file"
        source.write_bytes(content)
        shared_guest.put(source, "/tmp/from-file")
        shared_guest.put(content, "/tmp/from-bytes")
        shared_guest.succeed(["cmp", "/tmp/from-file", "/tmp/from-bytes"])
        assert shared_guest.get("/tmp/from-file") == content
        shared_guest.succeed(["rm", "/tmp/from-file", "/tmp/from-bytes"])

    def test_a_file_gets_its_mode_and_replaces_another(self, shared_guest: Guest) -> None:
        shared_guest.put(b"something much longer than the script", "/tmp/script")
        shared_guest.put(b"#!/bin/sh\necho script\n", "/tmp/script", mode=0o750)
        assert shared_guest.succeed(["stat", "-c", "%a", "/tmp/script"]).text == "750\n"
        assert shared_guest.succeed(["/tmp/script"]).text == "script\n"

    def test_a_file_of_the_kernels_is_read_whatever_its_size_says(self, shared_guest: Guest) -> None:
        assert shared_guest.get("/proc/version") == shared_guest.succeed(["cat", "/proc/version"]).stdout

    def test_a_file_with_a_strange_name(self, shared_guest: Guest) -> None:
        name = "/tmp/ a'b\"$c\n-ü\n"
        shared_guest.put(b"strange", name)
        assert shared_guest.get(name) == b"strange"
        shared_guest.succeed(["rm", name])

    def test_a_file_of_the_host_that_cannot_be_read(self, shared_guest: Guest, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError):
            shared_guest.put(tmp_path / "nonesuch", "/tmp/never-written")
        assert shared_guest.run(["test", "-e", "/tmp/never-written"]).status == 1
