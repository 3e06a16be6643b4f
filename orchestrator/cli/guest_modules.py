# SPDX-License-Identifier: GPL-2.0-only
"""The modules that ``exec`` and ``shell`` load into their guest: built if they are sources, with their parameters."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.program import PROGRAM

if TYPE_CHECKING:
    from orchestrator.artifacts.build_context import BuildContext
    from orchestrator.artifacts.kernels import Kernel
    from orchestrator.artifacts.modules import Module
    from orchestrator.guest.guest import Guest

_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,9}")

Modules = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PATH",
        help="A module to load first: a .c, .c.j2 or .ko file, or a folder with a Kbuild or Makefile (FOLDER:NAME "
        "where it makes several); may be repeated.",
    ),
]
Parameters = Annotated[
    list[str] | None,
    typer.Option(
        "--param",
        metavar="[MODULE.]NAME=VALUE",
        help="A parameter of a module, as on a kernel's command line. Without MODULE. it is for the only --module.",
    ),
]
Values = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="NAME=VALUE", help="A value for modules' templates, or a variable for make in their folders."
    ),
]


@dataclass
class GuestModules:
    """The modules asked for on the command line: checked at once, built for a kernel, loaded into a guest."""

    paths: Sequence[str] = ()
    parameters: Sequence[str] = ()
    values: Sequence[str] = ()
    _built: list[tuple[Module, Mapping[str, str]]] = field(default_factory=list)

    def check(self) -> None:
        """Raise UsageError for what is wrong with the options, before anything is fetched or built."""
        from orchestrator.artifacts.user_modules import takes_values
        from orchestrator.catalog.given_parameters import parameter_problem
        from orchestrator.errors import UsageError

        for given in self.paths:
            _check_path(given)
        for option, assignments in (("--param", self.parameters), ("--set", self.values)):
            for assignment in assignments:
                if not self.paths:
                    raise UsageError(f"{option} {assignment}: there is no --module that it could be for")
                if not assignment.partition("=")[0] or "=" not in assignment:
                    raise UsageError(f"{option}: found {assignment!r}; expected NAME=VALUE")
            _assigned(assignments, option)
        for key, value in _assigned(self.parameters, "--param").items():
            wrong = parameter_problem(key.rpartition(".")[2], value)
            if wrong is not None:
                raise UsageError(f"--param: {wrong}")
        if self.values and not any(takes_values(_split(given)[0]) for given in self.paths):
            hint = "a module's parameters: --param NAME=VALUE"
            raise UsageError(f"--set {self.values[0]}: no --module is a template or a folder", hint=hint)

    def build(self, context: BuildContext, kernel: Kernel) -> None:
        """Build them. Raises UsageError for a parameter that no module has; see ``user_modules``."""
        from orchestrator.artifacts.module_parameters import check_parameter_names
        from orchestrator.artifacts.user_modules import takes_values, user_modules
        from orchestrator.errors import UsageError

        wanted: dict[str, Module] = {}
        asked_for: list[str] = []
        for given in self.paths:
            path, name = _split(given)
            values = _values(self.values) if takes_values(path) else {}
            modules = user_modules(context, kernel, path, name=name, values=values)
            for module in modules:
                if wanted.setdefault(module.name, module).file != module.file:
                    raise UsageError(f"--module {given}: another module is called {module.name}", hint="rename one")
            asked_for.append(modules[-1].name)
        parameters = self._parameters(asked_for, list(wanted))
        for loaded, assigned in parameters.items():
            check_parameter_names(wanted[loaded], assigned)
        self._built = [(module, parameters.get(name, {})) for name, module in wanted.items()]

    def load(self, guest: Guest, time_limit: float) -> None:
        """Load them in the order given, each within ``time_limit`` host seconds.

        Raises RefusedError with the kernel's message, GuestHang, CommandTimeout.
        """
        from orchestrator.probes.loading import WATCHED, load

        for module, parameters in self._built:
            load(guest, module.name, module.file, parameters=parameters, time_limit=time_limit, insmod=WATCHED)

    def _parameters(self, asked_for: Sequence[str], names: Sequence[str]) -> dict[str, dict[str, str]]:
        from orchestrator.catalog.spelling import unknown
        from orchestrator.errors import UsageError

        found: dict[str, dict[str, str]] = {}
        for key, value in _assigned(self.parameters, "--param").items():
            module, dot, name = key.partition(".")
            if not dot:
                module, name = asked_for[0], key
                if len(set(asked_for)) > 1:
                    hint = f"--param {module}.{key}={value}"
                    raise UsageError(f"--param {key}: for which of the modules {', '.join(asked_for)}?", hint=hint)
            module = module.replace("-", "_")
            if module not in names:
                raise UsageError(f"--param {key}: {unknown('module', module, names)}")
            found.setdefault(module, {})[name] = value
        return found


def _check_path(given: str) -> None:
    from orchestrator.catalog.user_probe import find_module
    from orchestrator.errors import UsageError

    path, _ = _split(given)
    if not given:
        raise UsageError("--module: found nothing; expected the path of a file or folder of a module")
    if not path.exists():
        raise UsageError("no such file or folder of a module", where=given, hint=_meant(given, path))
    if not path.is_dir():
        find_module(given)


def _meant(given: str, path: Path) -> str:
    """A hint at what may be meant by a path at which nothing is."""
    from orchestrator.artifacts.module_source import templates
    from orchestrator.catalog.given_parameters import split_path
    from orchestrator.catalog.similar_file import similar_file
    from orchestrator.catalog.user_probe import SUFFIXES

    file, parameters = split_path(given)
    if parameters:
        return f"the parameters of a module are an option of their own: --module {file} --param {parameters}"
    if given in templates():
        return f"a module of the lab's is built first: {PROGRAM} kmod build {given} --out ."
    return similar_file(path, SUFFIXES)


def _split(given: str) -> tuple[Path, str | None]:
    """A path, and the module's name behind the colon where a folder stands before it."""
    from orchestrator.paths import user_path

    folder, colon, name = given.rpartition(":")
    if colon and not user_path(given).exists() and user_path(folder).is_dir():
        return user_path(folder), name
    return user_path(given), None


def _values(given: Sequence[str]) -> dict[str, str | int]:
    """The values of ``--set``; one that is written as a whole number is one."""
    assigned = _assigned(given, "--set")
    return {name: int(value) if _NUMBER.fullmatch(value) else value for name, value in assigned.items()}


def _assigned(given: Sequence[str], option: str) -> dict[str, str]:
    from orchestrator.errors import UsageError

    assigned: dict[str, str] = {}
    for assignment in given:
        name, _, value = assignment.partition("=")
        if name in assigned:
            raise UsageError(f"{option} {name}: it is given twice")
        assigned[name] = value
    return assigned
