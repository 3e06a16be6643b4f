# SPDX-License-Identifier: GPL-2.0-only
"""The modules of a user for one guest: checked, built for its kernel, and loaded."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.module_source import templates
from orchestrator.artifacts.modules import Module, check_parameter_names, takes_values, user_modules
from orchestrator.artifacts.ready_kernels import Kernel
from orchestrator.catalog.data import similar_file, unknown
from orchestrator.catalog.probes import SUFFIXES, find_module, parameter_problem, split_member, split_path
from orchestrator.errors import UsageError
from orchestrator.guest.guest import Guest
from orchestrator.paths import user_path
from orchestrator.probes.loading import WATCHED, load
from orchestrator.program import PROGRAM

LOADING_LIMIT = 60.0
"""Default time limit of a module's init function in host seconds."""

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
