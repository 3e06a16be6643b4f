# SPDX-License-Identifier: GPL-2.0-only
"""How does a test put djprobes into a guest's kernel, one by one, and see what they do?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from module_maker import ModuleMaker

from orchestrator.artifacts.module_source import ModuleSource, module_folders
from orchestrator.artifacts.modules import Module
from orchestrator.artifacts.sources import included
from orchestrator.errors import GuestError
from orchestrator.guest.guest import Guest

NAME = "djprobe_trial"
_FOLDER = Path(__file__).with_name("modules")
_SHAPES = ("djprobe_shapes.S", "djprobe_branches.c")
_WINDOWS = ("djprobe_windows.h", "window.h", "window.c")


def trial_source(name: str = NAME) -> ModuleSource:
    """The trial module, under a name of its own where two are to be loaded: djprobe's sources and the shapes."""
    main = (_FOLDER / "djprobe_trial.c").read_text()
    shared = [file for file in included(main, [_FOLDER, *module_folders()]) if file.name != "djprobe_trial.c"]
    files = {file.name: file.read_text() for file in [*shared, *(_FOLDER / name for name in (*_SHAPES, *_WINDOWS))]}
    files[f"{name}_main.c"] = main
    objects = " ".join(f"{Path(file).stem}.o" for file in files if not file.endswith(".h"))
    # objtool is right to find the shapes strange.
    kbuild = (
        f"obj-m := {name}.o\n{name}-y := {objects}\nOBJECT_FILES_NON_STANDARD_djprobe_shapes.o := y\n"
        "CFLAGS_djprobe_jump.o := -include $(src)/djprobe_windows.h\n"
    )
    return ModuleSource(name, {**files, "Kbuild": kbuild})


@dataclass(frozen=True)
class Trial:
    """The loaded trial module. What it refuses is a GuestError."""

    guest: Guest
    name: str = NAME

    def put(self, number: int, symbol: str, offset: int = 0, address: int = 0) -> int:
        """Register djprobe ``number``, by address where ``symbol`` is empty; its address."""
        for key, value in (("symbol", symbol), ("offset", offset), ("address", address)):
            self.write(key, str(value))
        self.write("put", str(number))
        return int(self.read("address"))

    def take(self, number: int) -> None:
        """Unregister djprobe ``number``."""
        self.write("take", str(number))

    def refusal(self, symbol: str, offset: int = 0, address: int = 0, number: int = 0) -> str:
        """Why djprobe ``number`` is refused there, in the kernel's log; empty where it was (it is taken away)."""
        self.guest.succeed(["dmesg", "-c"])
        try:
            self.put(number, symbol, offset, address)
        except GuestError:
            (message,) = [line for line in self.guest.run(["dmesg"]).text.splitlines() if f"{self.name}: " in line]
            return message.partition(f"{self.name}: ")[2]
        self.take(number)
        return ""

    def call(self, symbol: str, argument: int = 0) -> tuple[int, list[int]]:
        """Call a function of the module: what it returns, and the djprobes that were hit, in order."""
        self.write("call", f"{symbol} {argument}")
        order = self.read("order")
        return int(self.read("result")), [int(number) for number in order.split(",") if number]

    def meanwhile(self, window: str, script: str) -> None:
        """Run a shell script in that window of the next djprobe's way in (``djprobe_windows.h``)."""
        self.guest.put(script.encode(), "/tmp/window.sh")
        self.write("window", window)

    def counts(self, name: str = "hits") -> list[int]:
        """Hits on each CPU since the module was loaded; ``exact`` for those of processes of that name."""
        return [int(number) for number in self.read(name).split()]

    def read(self, parameter: str) -> str:
        """One parameter of the module."""
        return self.guest.get(f"/sys/module/{self.name}/parameters/{parameter}").decode("ascii").strip()

    def write(self, parameter: str, value: str) -> None:
        """Write one parameter; an empty value too, which takes a newline."""
        self.guest.put(f"{value}\n".encode(), f"/sys/module/{self.name}/parameters/{parameter}")


def insert(guest: Guest, module: Module, arguments: Sequence[str] = ()) -> None:
    """Load a module with parameters. Raises CommandFailed where the kernel refuses it."""
    target = f"/tmp/{module.name}.ko"
    guest.put(module.file, target)
    guest.succeed(["insmod", target, *arguments])


def trial_module(modules: ModuleMaker, name: str = NAME) -> Module:
    """The trial module, built for the guest's kernel."""
    return modules.built(trial_source(name))
