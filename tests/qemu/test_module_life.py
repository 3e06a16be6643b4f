# SPDX-License-Identifier: GPL-2.0-only
"""Are a probe module's parameters harmless before its init function has ended, and once its exit function has begun?"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pytest
from djprobe_trial import insert
from module_maker import ModuleMaker

from orchestrator.artifacts.module_source import ModuleSource, Value, render
from orchestrator.artifacts.modules import Module
from orchestrator.artifacts.ready_kernels import Kernel
from orchestrator.catalog.kernels import kernels
from orchestrator.errors import CommandFailed, GuestError
from orchestrator.guest.guest import Guest

UP, TRACED = "lab-i386-up", "debian-686"
GETTIMEOFDAY = 78
"""Of i386."""

_FOLDER = Path(__file__).with_name("modules")
_WINDOW = ("window.h", "window.c")


def probe_source(template: str, kernel: Kernel) -> ModuleSource:
    # The function tracer's own place is the function's first byte.
    offset = 0 if template == "ftrace" else kernels()[kernel.spec.name].entry_offset
    values: dict[str, Value] = {"symbol": "__ia32_sys_gettimeofday", "offset": offset, "number": GETTIMEOFDAY}
    return render(template, values)


def extended(source: ModuleSource, files: Sequence[str], flags: str) -> ModuleSource:
    """A module with more files of these tests', and compiler flags for its own ones."""
    added = {name: (_FOLDER / name).read_text() for name in files}
    objects = " ".join(f"{Path(name).stem}.o" for name in files if name.endswith(".c"))
    kbuild = f"{source.files['Kbuild']}{source.name}-y += {objects}\n{flags}\n"
    return dataclasses.replace(source, files={**source.files, **added, "Kbuild": kbuild})


def parameter(module: Module, name: str) -> str:
    return f"/sys/module/{module.name}/parameters/{name}"


@pytest.mark.guest(kernel=UP, timing="tcg")
def test_parameters_cannot_be_read_before_init_has_ended(
    shared_guest: Guest, guest_kernel: Kernel, modules: ModuleMaker
) -> None:
    flags = "CFLAGS_djprobe_jump.o := -include $(src)/djprobe_windows.h"
    source = extended(probe_source("djprobe", guest_kernel), (*_WINDOW, "djprobe_windows.h"), flags)
    module, mark = modules.built(source), shared_guest.console.length()
    names = ["detour", "replaced", "missed", "address"]
    script = [f"cat {parameter(module, name)} || echo nothing" for name in names]
    shared_guest.put(f"({'; '.join(script)}) > /tmp/seen 2> /dev/null".encode(), "/tmp/window.sh")
    insert(shared_guest, module, ["window=grace"])
    assert shared_guest.get("/tmp/seen") == b"nothing\n" * len(names)
    assert all(shared_guest.get(parameter(module, name)) for name in names)
    shared_guest.succeed(["rmmod", module.name])
    shared_guest.check_console(mark)


@pytest.mark.guest(kernel=UP, timing="tcg")
def test_a_sample_is_not_taken_before_init_has_ended(
    shared_guest: Guest, guest_kernel: Kernel, modules: ModuleMaker
) -> None:
    values: dict[str, Value] = {"symbol": "__ia32_sys_gettimeofday", "offset": 0, "capability": "anywhere"}
    flags = "CFLAGS_lab_capability_kprobe_main.o := -include $(src)/capability_window.h"
    source = extended(render("capability_kprobe", values), (*_WINDOW, "capability_window.h"), flags)
    module, mark = modules.built(source), shared_guest.console.length()
    shared_guest.put(
        f"cat {parameter(module, 'sample')} > /tmp/seen || echo nothing > /tmp/seen".encode(), "/tmp/window.sh"
    )
    insert(shared_guest, module, ["window=init"])
    assert shared_guest.get("/tmp/seen") == b"nothing\n"
    assert b" in " in shared_guest.get(parameter(module, "sample"))
    shared_guest.succeed(["rmmod", module.name])
    shared_guest.check_console(mark)


@pytest.mark.guest(kernel=UP, timing="tcg")
def test_a_probe_cannot_be_armed_before_init(shared_guest: Guest, guest_kernel: Kernel, modules: ModuleMaker) -> None:
    module = modules.built(probe_source("tracepoint", guest_kernel))
    with pytest.raises(CommandFailed):
        insert(shared_guest, module, ["armed=1"])
    insert(shared_guest, module, ["handler=count"])
    shared_guest.put(b"1", parameter(module, "armed"))
    assert shared_guest.get(parameter(module, "handler")) == b"count\n"
    shared_guest.succeed(["rmmod", module.name])
    shared_guest.check_console()


@pytest.mark.parametrize(
    ("template", "name", "value"),
    [
        pytest.param("tracepoint", "armed", "1", marks=pytest.mark.guest(kernel=UP, timing="tcg")),
        pytest.param("kprobe", "handler", "count", marks=pytest.mark.guest(kernel=UP, timing="tcg")),
        pytest.param("markers", "armed", "static_key key_count", marks=pytest.mark.guest(kernel=UP, timing="tcg")),
        pytest.param("kpcache_driver", "do", "total 5", marks=pytest.mark.guest(kernel=UP, timing="tcg")),
        pytest.param("ftrace", "handler", "count", marks=pytest.mark.guest(kernel=TRACED, timing="tcg")),
    ],
)
def test_a_module_that_has_ended_takes_no_parameter(
    shared_guest: Guest, guest_kernel: Kernel, modules: ModuleMaker, template: str, name: str, value: str
) -> None:
    module = modules.built(probe_source(template, guest_kernel))
    main = {"module_watch.c": (_FOLDER / "module_watch.c").read_text()}
    watch = ModuleSource("watch", {**main, "Kbuild": "obj-m := watch.o\nwatch-y := module_watch.o\n"})
    insert(shared_guest, modules.built(extended(watch, _WINDOW, "")))
    shared_guest.put(module.name.encode(), "/sys/module/watch/parameters/window")
    shared_guest.put(f"echo {value} > {parameter(module, name)}; echo $? > /tmp/written".encode(), "/tmp/window.sh")
    insert(shared_guest, module)
    shared_guest.succeed(["rmmod", module.name])
    assert shared_guest.get("/tmp/written") == b"1\n"
    shared_guest.succeed(["rmmod", "watch"])
    shared_guest.check_console()


@pytest.mark.guest(kernel=UP, timing="tcg")
def test_a_handler_that_cannot_be_exchanged_is_an_error(
    shared_guest: Guest, guest_kernel: Kernel, modules: ModuleMaker
) -> None:
    flags = "CFLAGS_lab_tracepoint_main.o := -include $(src)/tracepoint_refusal.h"
    source = extended(probe_source("tracepoint", guest_kernel), ("tracepoint_refusal.h",), flags)
    module = modules.built(source)
    insert(shared_guest, module)
    shared_guest.put(b"1", parameter(module, "armed"))
    shared_guest.put(b"1", parameter(module, "refusals"))
    with pytest.raises(GuestError, match="device or resource busy"):
        shared_guest.put(b"count", parameter(module, "handler"))
    assert shared_guest.get(parameter(module, "handler")) == b"noop\n"
    assert shared_guest.get(parameter(module, "enabled")) == b"1\n"
    shared_guest.put(b"count", parameter(module, "handler"))
    assert shared_guest.get(parameter(module, "handler")) == b"count\n"
    shared_guest.succeed(["rmmod", module.name])
    shared_guest.check_console()
