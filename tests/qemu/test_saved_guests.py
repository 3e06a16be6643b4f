# SPDX-License-Identifier: GPL-2.0-only
"""Is a restored guest the one that was saved, to the instruction, and a spoilt one never used?"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from command_line import CommandLine
from experiment_boot import artifacts_of, boot_of_calls, measured_call
from needed_images import needed_image
from other_users import TRACED

from orchestrator.artifacts import digests, saved_guests
from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import Cache
from orchestrator.artifacts.ready_kernels import ready_kernel
from orchestrator.catalog.image_recipes import image
from orchestrator.catalog.kernels import kernels
from orchestrator.catalog.probes import probes
from orchestrator.errors import GuestError
from orchestrator.experiment.guest_spec import GuestSpec
from orchestrator.experiment.plan import Boot
from orchestrator.guest import new_identity, saved_state, saving_and_restoring
from orchestrator.guest.guest import Guest
from orchestrator.guest.machine import ChannelKind, Machine, Timing
from orchestrator.guest.saved_state import SavedGuest
from orchestrator.guest.saving_and_restoring import save_guest
from orchestrator.paths import cache_dir, data_dir
from orchestrator.probes.symbols import KALLSYMS, KALLSYMS_MAX
from orchestrator.run import guest_start
from orchestrator.run.guest_checks import OtherPace
from orchestrator.run.guest_start import start_guest
from orchestrator.run.machines import machine_for
from orchestrator.run.ready_guest import ReadyGuest, ready_guest

pytestmark = [pytest.mark.qemu, pytest.mark.kernels("lab-i386-up")]

EXEC = ("exec", "--offline", "--kernel", "lab-i386-up", "--accel", "instructions", "-v", "--", "uname", "-m")
KERNELS = [
    pytest.param(
        name,
        marks=[
            pytest.mark.kernels(name),
            pytest.mark.nightly("every kind of probe, restored and booted; test_profile.py has one every day"),
        ],
    )
    for name in ("debian-686", "debian-amd64", "lab-i386-up", "lab-x86_64-smp")
]


@pytest.fixture
def said() -> list[str]:
    """What a person is warned of."""
    return []


@pytest.fixture
def own_cache(tmp_path: Path, workshop: BuildContext) -> Path:
    """The user's cache by links, without saved guests.

    What guests need is built before: the links have locks of their own, and two processes would build one artifact.
    """
    machine_of(workshop)
    root = tmp_path / "cache"
    root.mkdir()
    for folder in cache_dir().iterdir():
        if folder.is_dir() and folder.name not in {"locks", "damaged", "slots", saved_guests.KIND}:
            (root / folder.name).symlink_to(folder)
    return root


@pytest.fixture
def context(own_cache: Path, said: list[str], monkeypatch: pytest.MonkeyPatch) -> BuildContext:
    """What builds artifacts on the test's own cache."""
    monkeypatch.setattr(guest_start, "_given_up", set())
    return BuildContext(Cache(own_cache), warn=said.append)


@pytest.fixture
def machine(context: BuildContext) -> Machine:
    return machine_of(context)


def machine_of(context: BuildContext, timing: Timing = "instructions") -> Machine:
    return machine_for(
        context,
        ready_kernel(context, kernels()["lab-i386-up"]),
        GuestSpec(cpu="pentium4", memory="128M", timing=timing),
    )


@pytest.fixture(scope="module")
def user_s(workshop: BuildContext, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The guest of ``machine`` that is saved in the user's cache."""
    with start_guest(workshop, Guest(machine_of(workshop), tmp_path_factory.mktemp("user"))) as guest:
        key = guest.restored_from
    (place,) = (place for place in saved_in(workshop) if place.name == key)
    return place


@pytest.fixture
def place(context: BuildContext, user_s: Path) -> Path:
    """A saved guest of ``machine`` in the test's own cache: a copy of the user's, so that none is booted for it."""
    copy = context.cache.root / saved_guests.KIND / user_s.name
    copy.parent.mkdir()
    subprocess.run(["cp", "-a", user_s, copy], check=True)
    assert saved_in(context) == [copy]
    return copy


def saved_in(context: BuildContext) -> list[Path]:
    return [place for place, _ in context.cache.contents(saved_guests.KIND)]


def boot_with(kernel: str, rows: Sequence[str], handlers: Sequence[str]) -> Boot:
    return boot_of_calls(
        kernels=[kernel],
        machines=[{"cpu": "xeon-e5410" if kernels()[kernel].needs_long_mode else "pentium4"}],
        probes=list(rows),
        handlers=list(handlers),
        benchmark={"name": "gtodbench", "calls": 100, "repeats": 2},
    )


def figures(ready: ReadyGuest, boot: Boot) -> dict[str, object]:
    """What is measured of each cell, and what proves it."""
    records = {cell.id: measured_call(ready, cell) for cell in boot.cells}
    assert {record.status for record in records.values()} <= {"ok", "unsupported"}
    return {
        id_: (record.status, record.samples, record.evidence and (record.evidence.hits, record.evidence.int3))
        for id_, record in records.items()
    }


def check_equal(context: BuildContext, boot: Boot, folder: Path) -> None:
    """Cells of a booted guest, and of two restored ones that run at the same time."""
    artifacts = artifacts_of(context, boot)
    with ready_guest(context, artifacts, folder, "booted", fresh=True) as booted:
        assert booted.guest.restored_from is None
        expected = figures(booted, boot)
    with (
        ready_guest(context, artifacts, folder, "one") as guest,
        ready_guest(context, artifacts, folder, "other") as other_guest,
    ):
        assert guest.guest.restored_from == other_guest.guest.restored_from != None  # noqa: E711
        for cell in boot.cells:
            alone = replace(boot, cells=(cell,))
            for ready in (guest, other_guest):
                assert figures(ready, alone) == {cell.id: expected[cell.id]}


@pytest.mark.parametrize("kernel", KERNELS)
def test_every_kind_measures_the_same_restored(workshop: BuildContext, tmp_path: Path, kernel: str) -> None:
    check_equal(workshop, boot_with(kernel, [*probes()], ["noop", "record"]), tmp_path)


@TRACED
def test_a_guest_is_saved_once_and_privately_and_no_restored_one_writes_to_it(
    context: BuildContext, machine: Machine, tmp_path: Path, said: list[str]
) -> None:
    keys = set()
    for name in ("first", "second"):
        with start_guest(context, Guest(machine, tmp_path, name)) as guest:
            keys.add(guest.restored_from)
            assert guest.run(["test", "-e", "/tmp/mine"]).status == 1
            guest.put(bytes(1 << 20), "/tmp/mine")
            mapped = Path(f"/proc/{guest.pid}/maps").read_text().split()
            listed = guest.get(KALLSYMS, largest=KALLSYMS_MAX)
            assert guest.saved_symbols == listed  # which no cell asks for again
    (place,) = saved_in(context)
    assert keys == {place.name}
    assert said == []
    assert digests.changed(place, {}) is None
    assert place.stat().st_mode & 0o777 == 0o700
    modes = {file.name: file.stat().st_mode & 0o777 for file in place.iterdir()}
    assert (modes["memory"], modes["devices"], modes["console"]) == (0o600, 0o400, 0o400)
    # Memory has holes where the guest has none.
    assert (place / "memory").stat().st_blocks * 512 < machine.memory_mib << 19
    # What was on the console before is in both logs.
    assert (tmp_path / "second.console").read_bytes().startswith((place / "console").read_bytes())
    # All that QEMU has loaded of its own is in the key.
    loaded = {Path(word) for word in mapped if word.endswith(".so") and "qemu" in Path(word).parent.name}
    digested = {Path(name) for name in saved_guests.qemu_digests()}
    assert loaded <= digested, loaded - digested


DAY = 86_400


@pytest.fixture
def tomorrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the host be a day ahead where a restored guest gets its date."""
    monkeypatch.setattr(new_identity, "time", SimpleNamespace(sleep=time.sleep, time=lambda: time.time() + DAY))


def check_date(guest: Guest) -> None:
    """The guest has the date that the host had when it was restored, ``tomorrow``, and not that of its saving.

    To the hour: a plain clock runs as fast as the kernel measured its TSC while it booted, and beside twenty busy
    processes one guest was 151 s ahead after 20.
    """
    assert abs(int(guest.succeed(["date", "+%s"]).text) - time.time() - DAY) < 3600


@pytest.mark.usefixtures("tomorrow")
def test_on_another_clock_the_time_is_right_and_the_pool_another(
    context: BuildContext, tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first guest's clock goes at another pace: another one is booted, and saved."""
    wrong, looked_at, drawn = [OtherPace("the guest's clock went on by 70 s")], list[Guest](), set()

    def check_once_in_vain(guest: Guest) -> None:
        looked_at.append(guest)
        if wrong:
            raise wrong.pop()

    monkeypatch.setattr("orchestrator.run.guest_start.check_pace", check_once_in_vain)
    for _ in range(2):
        with start_guest(context, Guest(machine_of(context, "tcg"), tmp_path)) as guest:
            assert guest.restored_from is not None
            check_date(guest)
            drawn.add(guest.get("/proc/sys/kernel/random/uuid"))
            assert guest.run(["test", "-e", "/root/seed"]).status == 1
    assert len(drawn) == 2
    assert len(set(map(id, looked_at))) == 2
    assert [each.pid for each in looked_at] == [None] * 2
    assert said == []


def test_guest_whose_clock_has_another_pace_is_not_saved(
    context: BuildContext, tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guest_start, "_BOOTS", 1)
    wrong = replace(machine_of(context, "tcg"), extra_parameters=("tsc_early_khz=100000",))
    with start_guest(context, Guest(wrong, tmp_path)) as guest:
        assert guest.restored_from is None
        assert guest.succeed(["uname", "-m"]).text == "i686\n"
    (line,) = said
    assert line.startswith("warning: no guest can be saved: the guest's clock went on by ")
    assert saved_in(context) == []


OVER_SSH = pytest.param("ssh", marks=pytest.mark.nightly("starts all of systemd, four times"))


@pytest.mark.usefixtures("tomorrow")
@pytest.mark.parametrize("channel", ["framed", OVER_SSH])
def test_restored_guests_of_an_image_are_not_clones(
    workshop: BuildContext, context: BuildContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, channel: ChannelKind
) -> None:
    folder, content = tmp_path / "mine", os.urandom(1 << 20)  # more than the kernel had read when the guest was saved
    folder.mkdir()
    (folder / "file").write_bytes(content)
    data = (folder, data_dir("configs"))
    spec = GuestSpec(cpu="pentium4", timing="tcg", image="debian-i386", channel=channel, data=data)
    machine_for(workshop, ready_kernel(workshop, kernels()["lab-i386-up"]), spec)  # see own_cache
    while_saving: set[str] = set()

    def keep_files(*arguments: Any) -> None:
        while_saving.update(file.suffix for file in tmp_path.iterdir() if file.is_file())
        saved_state.keep_files(*arguments)

    monkeypatch.setattr(saving_and_restoring, "keep_files", keep_files)
    kernel = ready_kernel(context, kernels()["lab-i386-up"])
    wanted_machine = machine_for(context, kernel, spec)
    with (
        start_guest(context, Guest(wanted_machine, tmp_path, "one")) as one,
        start_guest(context, Guest(wanted_machine, tmp_path, "other")) as other_guest,
    ):
        assert one.restored_from == other_guest.restored_from
        assert one.restored_from is not None
        for guest, name in ((one, "one"), (other_guest, "other")):
            assert guest.succeed(["hostname"]).text == f"{name}\n"
            assert guest.get("/etc/hostname").decode() == f"{name}\n"
            check_date(guest)
            assert guest.get("/data/mine/file") == content
            assert guest.get("/data/configs/quickstart.yaml") == (data_dir("configs") / "quickstart.yaml").read_bytes()
            guest.put(name.encode() * 1000, "/root/mine")
            guest.succeed(["sync"])
        for file in ("/etc/machine-id", "/proc/sys/kernel/random/uuid", "/root/mine"):
            assert one.get(file) != other_guest.get(file)
        if channel == "ssh":
            key = "/run/orchestrator/identity/host_key"
            assert one.get(key) != other_guest.get(key)
        one.check_console()
        # Neither keys nor disks are left in the folder, whatever ends us now.
        assert {file.suffix for file in tmp_path.iterdir() if file.is_file()} == {".console", ".qemu", ".log"}
        assert while_saving == {".console", ".qemu", ".log"}
    (place,) = saved_in(context)
    assert digests.changed(place, {}) is None


def test_systemd_is_restored_with_its_sshd(
    request: pytest.FixtureRequest, workshop: BuildContext, tmp_path: Path
) -> None:
    """From the user's cache: it is saved the first time only, since it takes twenty seconds to boot."""
    recipe = image("debian-i386-systemd")
    needed_image(request.config, recipe.name)
    kernel = ready_kernel(workshop, kernels()["debian-686"])
    wanted_machine = machine_for(
        workshop, kernel, GuestSpec(cpu="pentium4", memory="512M", timing="tcg", image=recipe.name, channel="ssh")
    )
    own_facts = set()
    for name in ("one", "other"):
        with start_guest(workshop, Guest(wanted_machine, tmp_path, name)) as guest:
            assert guest.restored_from is not None
            assert guest.succeed(["systemctl", "is-system-running"]).text == "running\n"
            assert guest.succeed(["hostname"]).text == f"{name}\n"
            files = ("/etc/machine-id", "/run/orchestrator/identity/host_key", "/proc/sys/kernel/random/uuid")
            own_facts |= {guest.get(file) for file in files}
    assert len(own_facts) == 6


@pytest.mark.kernels("lab-i386-smp")
def test_both_cpus_of_a_restored_guest_go_on(context: BuildContext, tmp_path: Path) -> None:
    kernel = ready_kernel(context, kernels()["lab-i386-smp"])
    wanted_machine = machine_for(context, kernel, GuestSpec(cpu="pentium4", smp=2, memory="128M", timing="tcg"))
    for name in ("one", "other"):
        with start_guest(context, Guest(wanted_machine, tmp_path, name)) as guest:
            assert guest.restored_from is not None
            for number in range(2):
                ran = ("taskset", str(1 << number), "cat", "/proc/self/stat")
                # The CPU that a program runs on is the 39th field (proc(5)).
                assert guest.succeed(ran).text.split()[38] == str(number)
                guest.succeed(["taskset", str(1 << number), "sleep", "0.1"])
            guest.check_console()


# --- what is spoilt -------------------------------------------------------------------------------


def flip_memory(place: Path) -> None:
    with (place / "memory").open("r+b") as file:
        file.seek(os.lseek(file.fileno(), 0, os.SEEK_DATA))
        file.write(b"spoilt")


def cut_devices(place: Path) -> None:
    os.truncate(place / "devices", 1000)


NIGHTLY_DAMAGE = pytest.mark.nightly("another damage of a saved guest: two seconds")


@NIGHTLY_DAMAGE
@pytest.mark.parametrize("spoil", [flip_memory, cut_devices])
def test_a_damaged_one_is_saved_anew(
    context: BuildContext,
    machine: Machine,
    tmp_path: Path,
    said: list[str],
    place: Path,
    spoil: Callable[[Path], None],
) -> None:
    spoil(place)
    with start_guest(context, Guest(machine, tmp_path)) as guest:
        assert guest.restored_from == place.name
    assert len(said) == 1
    assert f"the saved guest {place.name} is damaged (" in said[0]
    assert saved_in(context) == [place]


def another_speed(place: Path) -> None:
    (place / "empty-loop").write_text("58\n")


def no_speed(place: Path) -> None:
    (place / "empty-loop").unlink()


@pytest.mark.parametrize(
    ("spoil", "why", "starts"),
    [
        (cut_devices, "QEMU", 2),
        pytest.param(no_speed, "it is not known what an empty loop took before", 1, marks=NIGHTLY_DAMAGE),
        (another_speed, "an empty loop took 28 ticks in the restored guest, and 58", 1),
    ],
)
def test_saved_guest_that_does_not_work_is_discarded_with_one_warning(
    context: BuildContext,
    machine: Machine,
    tmp_path: Path,
    said: list[str],
    place: Path,
    spoil: Callable[[Path], None],
    why: str,
    starts: int,
) -> None:
    spoil(place)
    digests.record(place, "manifest.json")  # as if it had been saved so
    for _ in range(starts):
        with start_guest(context, Guest(machine, tmp_path)) as guest:
            assert guest.restored_from is None
            assert guest.succeed(["uname", "-m"]).text == "i686\n"
    assert len(said) == 1
    assert said[0].startswith(f"warning: the saved guest {place.name} is discarded: ")
    assert why in said[0]
    assert not place.exists()


def test_without_a_cache_entry_that_can_be_read_guests_are_booted(
    context: BuildContext, machine: Machine, tmp_path: Path, said: list[str], place: Path
) -> None:
    """As that of another user, whose saved guests are private."""
    (place / "manifest.json").write_text("{")
    with start_guest(context, Guest(machine, tmp_path)) as guest:
        assert guest.restored_from is None
        with pytest.raises(GuestError, match="cannot be saved"):  # its memory is not ours
            save_guest(guest, SavedGuest("key", tmp_path))
    (line,) = said
    assert line.startswith(f"warning: no guest can be saved: the cache entry {place} cannot be read: ")


@pytest.mark.nightly("a guest for another key, which is tested every day without one: two seconds")
def test_another_qemu_has_guests_of_its_own(
    context: BuildContext, machine: Machine, tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saved_guests, "qemu_digests", lambda: {"qemu-system-x86_64": "another"})
    with start_guest(context, Guest(machine, tmp_path)) as guest:
        assert guest.restored_from not in (None, place.name)
    assert len(saved_in(context)) == 2


def test_on_a_full_disk_guests_are_booted(
    context: BuildContext, machine: Machine, tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(saving_and_restoring, "keep_files", fail)
    with start_guest(context, Guest(machine, tmp_path)) as guest:
        assert guest.restored_from is None
    (warning,) = said
    assert warning.startswith("warning: no guest can be saved: the disk of the cache folder was full a moment ago: ")
    assert warning.endswith("; the guest is booted")
    assert saved_in(context) == []


@pytest.mark.nightly("two processes, one after the other's lock: four seconds")
def test_two_processes_save_one_guest(context: BuildContext, own_cache: Path, tmp_path: Path) -> None:
    command = CommandLine(tmp_path, {"ORCHESTRATOR_CACHE": str(own_cache)})
    with contextlib.ExitStack() as open_files:
        logs = [open_files.enter_context((tmp_path / name).open("w+")) for name in ("one.log", "other.log")]
        both = [command.start(*EXEC, stderr=log.fileno()) for log in logs]
        assert [process.communicate()[0] for process in both] == ["i686\n"] * 2
        for log in logs:
            log.seek(0)
        steps = "".join(log.read() for log in logs)
    assert [process.returncode for process in both] == [0, 0]
    assert steps.count(" save guest (") == 1
    assert steps.count(" restore guest on pentium4 (") == 2
    assert len(saved_in(context)) == 1


@pytest.mark.nightly("a process that is killed: three seconds")
def test_process_killed_while_saving_leaves_no_usable_guest(
    context: BuildContext, own_cache: Path, tmp_path: Path
) -> None:
    command = CommandLine(tmp_path, {"ORCHESTRATOR_CACHE": str(own_cache)})
    saver = command.start(*EXEC, stderr=subprocess.DEVNULL)
    while not list(own_cache.glob(f"{saved_guests.KIND}/*.building/devices")):
        assert saver.poll() is None
        time.sleep(0.001)  # saving ends soon
    saver.send_signal(signal.SIGKILL)
    saver.communicate()
    assert command.qemus_after() == []
    assert [place.suffix for place in saved_in(context)] == [".building"]
    again = command.run(*EXEC)
    assert (again.returncode, again.stdout) == (0, "i686\n")
    assert [place.suffix for place in saved_in(context)] == [""]
