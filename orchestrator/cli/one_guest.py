# SPDX-License-Identifier: GPL-2.0-only
"""Shared by ``exec`` and ``shell``: options that choose a guest, its modules, its logs."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import typer

from orchestrator.artifacts.cache import BuildContext
from orchestrator.artifacts.kernels import Kernel, ready_kernel
from orchestrator.artifacts.module_source import templates
from orchestrator.artifacts.modules import Module, check_parameter_names, takes_values, user_modules
from orchestrator.artifacts.opening_cores import opening_command
from orchestrator.catalog.data import similar_file, unknown
from orchestrator.catalog.probes import SUFFIXES, find_module, parameter_problem, split_member, split_path
from orchestrator.cli import options
from orchestrator.cli.field_options import OptionsOf
from orchestrator.cli.in_the_tree import tree_kernel
from orchestrator.errors import GuestError, GuestOops, GuestPanic, LabError, UsageError
from orchestrator.experiment.guest_spec import GuestSpec, guest_argument_summaries, guest_arguments, guest_spec
from orchestrator.guest.guest import Guest
from orchestrator.guest.kernel_reports import report_patterns
from orchestrator.guest.machine import Login, Machine
from orchestrator.paths import user_path
from orchestrator.probes.loading import WATCHED, load
from orchestrator.program import PROGRAM
from orchestrator.run.debugging import Debugging, check_gdb
from orchestrator.run.machines import machine_for

_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,9}")


@dataclass
class GuestModules:
    """The modules of a command line: check the options, build them for a kernel, load them into a guest."""

    paths: Sequence[str] = ()
    parameters: Sequence[str] = ()
    values: Sequence[str] = ()
    _built: list[tuple[Module, Mapping[str, str]]] = field(default_factory=list)

    def check(self) -> None:
        """Raise UsageError for wrong options, before anything is fetched or built."""
        for given in self.paths:
            _check_path(given)
        for option, assignments in (("--param", self.parameters), ("--set", self.values)):
            for assignment in assignments:
                if not self.paths:
                    raise UsageError(f"{option} {assignment}: needs a --module")
                if not assignment.partition("=")[0] or "=" not in assignment:
                    raise UsageError(f"{option}: found {assignment!r}; expected NAME=VALUE")
            _assigned(assignments, option)
        for key, value in _assigned(self.parameters, "--param").items():
            wrong = parameter_problem(key.rpartition(".")[2], value)
            if wrong is not None:
                raise UsageError(f"--param: {wrong}")
        if self.values and not any(takes_values(_split(given)[0]) for given in self.paths):
            hint = "a module's parameters: --param NAME=VALUE"
            raise UsageError(f"--set {self.values[0]}: needs a --module that is a template or a folder", hint=hint)

    def build(self, context: BuildContext, kernel: Kernel) -> None:
        """Build the modules. Raises UsageError for an unknown parameter; see ``user_modules``."""
        wanted_modules: dict[str, Module] = {}
        requested: list[str] = []
        assigned = _assigned(self.values, "--set")
        values = {name: int(value) if _NUMBER.fullmatch(value) else value for name, value in assigned.items()}
        for given in self.paths:
            path, name = _split(given)
            modules = user_modules(context, kernel, path, name=name, values=values if takes_values(path) else {})
            for module in modules:
                if wanted_modules.setdefault(module.name, module).file != module.file:
                    raise UsageError(f"--module {given}: another module is named {module.name}", hint="rename one")
            requested.append(modules[-1].name)
        parameters = self._parameters(requested, list(wanted_modules))
        for loaded, own in parameters.items():
            check_parameter_names(wanted_modules[loaded], own)
        self._built = [(module, parameters.get(name, {})) for name, module in wanted_modules.items()]

    def load(self, guest: Guest, time_limit: float) -> None:
        """Load the modules in the order given, each within ``time_limit`` host seconds.

        Raises RefusedError with the kernel's message, GuestHang, CommandTimeout.
        """
        for module, parameters in self._built:
            load(guest, module.name, module.file, parameters=parameters, time_limit=time_limit, insmod=WATCHED)

    @property
    def built(self) -> Sequence[Module]:
        return [module for module, _ in self._built]

    def _parameters(self, requested: Sequence[str], names: Sequence[str]) -> dict[str, dict[str, str]]:
        found: dict[str, dict[str, str]] = {}
        for key, value in _assigned(self.parameters, "--param").items():
            module, dot, name = key.partition(".")
            if not dot:
                module, name = requested[0], key
                if len(set(requested)) > 1:
                    hint = f"--param {module}.{key}={value}"
                    raise UsageError(f"--param {key}: name one of the modules {', '.join(requested)}", hint=hint)
            module = module.replace("-", "_")
            if module not in names:
                raise UsageError(f"--param {key}: {unknown('module', module, names)}")
            found.setdefault(module, {})[name] = value
        return found


def _check_path(given: str) -> None:
    path, _ = _split(given)
    if not given:
        raise UsageError("--module: found nothing; expected the path of a module's file or folder")
    if not path.exists():
        raise UsageError("this module file or folder does not exist", where=given, hint=_hint_for_missing(given, path))
    if not path.is_dir():
        find_module(given)


def _hint_for_missing(given: str, path: Path) -> str:
    file, parameters = split_path(given)
    if parameters:
        return f"give parameters as a separate option: --module {file} --param {parameters}"
    if given in templates():
        return f"build the lab's module first: {PROGRAM} build module {given} --out ."
    return similar_file(path, SUFFIXES)


def _split(given: str) -> tuple[Path, str | None]:
    """The path, and the module's name of ``FOLDER:NAME``."""
    path, name = split_member(given)
    return user_path(path), name


def _assigned(given: Sequence[str], option: str) -> dict[str, str]:
    assigned: dict[str, str] = {}
    for assignment in given:
        name, _, value = assignment.partition("=")
        if name in assigned:
            raise UsageError(f"{option} {name}: found twice; give it once")
        assigned[name] = value
    return assigned


_USER = r"[A-Za-z_][A-Za-z0-9_.-]{0,31}"
_PASSWORD_MAX = 255
LOADING_LIMIT = 60.0
"""Default time limit of a module's init function in seconds."""

COMMAND_LIMIT = 600.0
"""Seconds for the command without --timeout."""


_GUEST_OPTIONS = OptionsOf(
    guest_arguments(),
    guest_argument_summaries,
    option={"timing": "--accel"},
    completion={"kernel": options.kernels, "image": options.images, "cpu": options.cpus},
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
            f"{COMMAND_LIMIT:g}, and {LOADING_LIMIT:g} for an init function.",
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
        options.check_writable(self.core)
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
        if not self.gdb:
            yield
            return
        kernel = ready_kernel(context, self._spec.kernel_spec)
        with closing(Debugging(context, kernel, self._modules.built, options.say).attach(guest)) as attachment:
            attachment.wait_until_attached()
            yield

    @contextmanager
    def leaving_core(self, context: BuildContext, guest: Guest) -> Iterator[None]:
        """A context at whose end the guest leaves a vmcore, if it has left none before."""
        try:
            yield
        finally:
            guest.keep_core()
            if self.core is not None and self.core.exists():
                options.say(f"vmcore: {self.core}")
                options.say(f"to open it: {opening_command(context, self._unchanged_kernel(context), self.core)}")

    def _unchanged_kernel(self, context: BuildContext) -> Kernel | None:
        """The guest's kernel; None if its tree was edited or rebuilt while the guest ran."""
        try:
            return ready_kernel(context, self._spec.kernel_spec)
        except (LabError, OSError):
            return None

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


def unexpected_trouble(guest: Guest) -> GuestOops | None:
    """The error for unexpected reports of the guest's kernel since boot, or for its taint; None without any."""
    try:
        guest.check_console()
        guest.check_taint(has_reported=bool(guest.reports()))
    except GuestOops as trouble:
        return with_console_log(trouble, guest.console.path)
    return None


def with_console_log(trouble: GuestOops, console: Path) -> GuestOops:
    """The error with the path of the console log, which is then kept, and a hint for the user."""
    hint = "--allow-oops REGEX allows an expected report" if trouble.detail else trouble.hint
    return GuestOops(trouble.what, where=str(console), detail=trouble.detail, hint=hint)


def with_kernel_reports(error: GuestError, guest: Guest) -> GuestError:
    """The error with the reports of the guest's kernel."""
    trouble = None if isinstance(error, GuestPanic) else unexpected_trouble(guest)
    if trouble is None:
        return error
    if isinstance(error, GuestOops):
        return trouble
    error.detail = (*error.detail, trouble.what, *trouble.detail)
    return error
