# SPDX-License-Identifier: GPL-2.0-only
"""Shared by ``exec`` and ``shell``: options that choose a guest, its modules, its logs."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import typer

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.ready_kernels import ready_kernel
from orchestrator.catalog.data import similar_file
from orchestrator.cli import completion, options
from orchestrator.cli.field_options import OptionsOf
from orchestrator.cli.in_the_tree import tree_kernel
from orchestrator.errors import UsageError
from orchestrator.experiment.guest_spec import GuestSpec, guest_argument_summaries, guest_arguments, guest_spec
from orchestrator.files import check_writable
from orchestrator.guest.guest import Guest
from orchestrator.guest.kernel_reports import report_patterns
from orchestrator.guest.machine import Login, Machine
from orchestrator.library.guest_command import GUEST_COMMAND_LIMIT
from orchestrator.library.guest_modules import LOADING_LIMIT, GuestModules
from orchestrator.library.running_guest import leave_core, wait_for_gdb
from orchestrator.run.debugging import check_gdb
from orchestrator.run.machines import machine_for

_USER = r"[A-Za-z_][A-Za-z0-9_.-]{0,31}"
_PASSWORD_MAX = 255

_GUEST_OPTIONS = OptionsOf(
    guest_arguments(),
    guest_argument_summaries,
    option={"timing": "--accel"},
    completion={"kernel": completion.kernels, "image": completion.images, "cpu": completion.cpus},
    note={
        "kernel": "In a kernel's tree it is by default that of the tree.",
        "allow_oops": "docs/reference/guest.md lists the reports.",
    },
    unchecked=("kernel", "image"),
)


@dataclass(frozen=True)
class GuestChoice:
    """A guest chosen on the command line: each field is an option of ``exec``, and most are of ``shell``."""

    guest: Annotated[Mapping[str, Any], _GUEST_OPTIONS] = field(default_factory=dict)
    tree: options.Tree = None
    user: Annotated[str, typer.Option(help="The user who logs in on the console (--channel serial).")] = "root"
    password_file: Annotated[Path | None, typer.Option(readable=False, help="A file with that user's password.")] = None
    module: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATH",
            help="A module to load first: a .c, .c.j2 or .ko file, or a folder with a Kbuild or Makefile (FOLDER:NAME "
            "if it builds several); may be repeated.",
        ),
    ] = None
    param: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[MODULE.]NAME=VALUE",
            help="A parameter of a module, as on a kernel's command line; MODULE. may be left out with one --module.",
        ),
    ] = None
    set_values: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="A value for modules' templates, or a make variable for their folders.",
        ),
    ] = None
    get: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATH",
            help="A file or folder of the guest, such as /scratch, to copy to the current folder or to --out after "
            "the command; may be repeated. Nothing is overwritten.",
        ),
    ] = None
    out: options.OutputFolder = None
    timeout: Annotated[
        float | None,
        typer.Option(
            min=0.1,
            help="Time limit in seconds for the command and for each --module's init function; default: "
            f"{GUEST_COMMAND_LIMIT:g}, and {LOADING_LIMIT:g} for an init function.",
            show_default=False,
        ),
    ] = None
    console: Annotated[
        Path | None, typer.Option(help="Keep the guest's console log and the step log in this folder.")
    ] = None
    core: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write a vmcore for drgn, crash and gdb when the guest's kernel panics or hangs, else at the end.",
        ),
    ] = None
    gdb: Annotated[
        bool, typer.Option("--gdb", help="Stop the guest before the command or the shell, and wait for gdb to attach.")
    ] = False

    @cached_property
    def expected(self) -> Sequence[re.Pattern[str]]:
        """The patterns of ``--allow-oops``. Raises UsageError as ``report_patterns`` does."""
        try:
            return report_patterns(self.guest.get("allow_oops", ()))
        except UsageError as error:
            raise UsageError(error.what, where="--allow-oops", hint=error.hint) from None

    @property
    def fresh(self) -> bool:
        return bool(self.guest.get("fresh"))

    @property
    def kernel_modules(self) -> bool:
        return bool(self.guest.get("kernel_modules"))

    def check(self) -> None:
        """Raise UsageError for an invalid pattern, a folder for logs that is a file, and a vmcore that exists."""
        _ = self.expected
        if self.console is not None and self.console.exists() and not self.console.is_dir():
            raise UsageError("--console needs a folder, and this is a file", where=str(self.console))
        check_writable(self.core)
        if self.core is not None and os.path.lexists(self.core):
            raise UsageError("it exists already, and --core overwrites nothing", where=str(self.core))

    def machine(self, context: BuildContext) -> Machine:
        """Fetch and build the machine and its modules. Raises UsageError, HostError, BuildError."""
        login = self._login()
        spec = self._spec
        if self.gdb:
            check_gdb()
        self._modules.check()
        kernel = ready_kernel(context, spec.kernel_spec)
        self._modules.build(context, kernel)
        return machine_for(context, kernel, spec, login)

    def prepare(self, guest: Guest) -> None:
        """Set the guest's expected reports, and load the modules as ``GuestModules.load`` does."""
        guest.expected_reports = self.expected
        self._modules.load(guest, self.timeout or LOADING_LIMIT)

    @contextmanager
    def debugged(self, context: BuildContext, guest: Guest) -> Iterator[None]:
        """With ``--gdb``, a context that begins once gdb has attached to the guest, in which modules are loaded."""
        with wait_for_gdb(context, self._spec, self._modules.built, guest) if self.gdb else nullcontext():
            yield

    @contextmanager
    def leaving_core(self, context: BuildContext, guest: Guest) -> Iterator[None]:
        """A context at whose end the guest leaves the vmcore of ``--core``, if it has left none before."""
        spec = self._spec  # now: its tree may change meanwhile
        try:
            yield
        finally:
            leave_core(context, spec, guest)

    @cached_property
    def _modules(self) -> GuestModules:
        return GuestModules(self.module or (), self.param or (), self.set_values or ())

    @cached_property
    def _spec(self) -> GuestSpec:
        return guest_spec({**self.guest, "kernel": tree_kernel(self.tree, self.guest.get("kernel"))}, "--")

    def _login(self) -> Login:
        for folder in self.guest.get("data", ()):
            if not folder.is_dir():
                raise _no_data(folder)
        if not re.fullmatch(_USER, self.user):
            raise UsageError(f"--user: found {self.user!r}; a user's name has letters, digits, '_', '.' and '-'")
        channel = self.guest.get("channel", "framed")
        if channel != "serial" and (self.user != "root" or self.password_file is not None):
            raise UsageError(
                f"--user and --password-file are for a login on the console; over {channel} all runs as root",
                hint="--channel serial",
            )
        return Login(self.user, self._password())

    def _password(self) -> str | None:
        if self.password_file is None:
            return None
        try:
            with self.password_file.open() as file:
                password = file.read(_PASSWORD_MAX + 1).removesuffix("\n")
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not text"
            raise UsageError(f"cannot read the password: {why}", where=str(self.password_file)) from None
        if not password.isprintable() or len(password) > _PASSWORD_MAX:
            what = f"a password is one line of at most {_PASSWORD_MAX} printable characters"
            raise UsageError(what, where=str(self.password_file))
        return password


def _no_data(folder: Path) -> UsageError:
    if folder.exists():
        hint = f"name the folder that has it: --data {shlex.quote(str(folder.absolute().parent))}"
        return UsageError("--data needs a folder, and this is a file", where=str(folder), hint=hint)
    before, _, _ = str(folder).partition(":")
    if before != str(folder) and Path(before).is_dir():
        hint = f"the guest always has it at /data/NAME: --data {shlex.quote(before)}"
    else:
        hint = similar_file(folder, ("",))
    return UsageError("this folder does not exist", where=str(folder), hint=hint)
