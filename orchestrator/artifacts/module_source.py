# SPDX-License-Identifier: GPL-2.0-only
"""A module's sources: the rendered template and the files that it includes."""

from __future__ import annotations

import os
import re
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path

import jinja2

from orchestrator.artifacts.diagnostics import Origins, SourceLine
from orchestrator.artifacts.rendered_lines import line_origins, template_environment
from orchestrator.artifacts.sources import included_as, read_c_source
from orchestrator.catalog.data import unknown
from orchestrator.errors import ConfigError, UsageError
from orchestrator.paths import data_dir

TEMPLATE = ".c.j2"

_LARGEST = 1 << 31
_LONGEST = 1024
_LONGEST_NAME = 40  # of a user's module; MODULE_NAME_LEN is 56 with the terminating zero on 64-bit kernels

_SYNTAX = (
    "{{ VALUE }} is replaced, {% if VALUE %}...{% endif %} chooses; "
    "C that has such braces stands between {% raw %} and {% endraw %}"
)

OWN = "own_"
"""Prefix of users' modules; no module of the kernel has it."""

_FORMAT_ERRORS = "-Werror=format -Werror=format-extra-args"
"""A probe reads a marker's arguments by its format: with a wrong one it would read what was not passed."""

_INCLUDED = re.compile(r'^\s*#\s*include\s+["<]([^">]+)', re.MULTILINE)
_PLAIN_KBUILD = re.compile(
    r"obj-m := (\w+)\.o\n\1-y := (?P<objects>(?:\w+\.o ?)*)\n(?P<flags>(?:ccflags-y := (?:(?!-include).)*\n)?)"
)


Scalar = str | int
Value = Scalar | tuple[Scalar, ...]


@dataclass(frozen=True)
class ModuleSource:
    """A module's files, with its Kbuild, by paths in its folder. ``name`` is the kernel's name of the module.

    A path may lead out of the folder (``../x.h``), or be absolute: that file stays where it is. ``origins`` has the
    paths on the host that messages name, by the same paths. ``rendered`` has, of a template, where each line is from.
    """

    name: str
    files: Mapping[str, str]
    origins: Mapping[str, Path] = field(default_factory=dict)
    rendered: Mapping[str, Callable[[], Sequence[SourceLine]]] = field(default_factory=dict, compare=False, repr=False)

    @property
    def places(self) -> Origins:
        """The user's files by the names of sources, of objects made of them, and of the module."""
        objects = {str(Path(name).with_suffix(".o")): file for name, file in self.origins.items()}
        main = self.origins.get(f"{self.name}_main.c")
        made = (
            {f"{self.name}{suffix}": main for suffix in (".o", ".ko", ".mod.c", ".mod.o")} if main is not None else {}
        )
        return Origins({**made, **objects, **self.origins}, self.rendered)

    def parts(self) -> dict[str, dict[str, str]]:
        """The names of all objects but the main one's, each with the texts that decide its content.

        The texts include the module's name if one of them uses it (KBUILD_MODNAME), or if the module is a user's:
        pr_debug() of the kernel's headers puts it into the object, too. Empty if the Kbuild has more than a list of
        objects and common flags.
        """
        kbuild = _PLAIN_KBUILD.fullmatch(self.files["Kbuild"])
        if kbuild is None:
            return {}
        files = {Path(name).stem: name for name in self.files if re.fullmatch(r"\w+\.[cS]", name)}
        lab = (data_dir("kmods"), data_dir("images"))
        users = {name for name, file in self.origins.items() if not any(map(file.is_relative_to, lab))}
        parts = {}
        for part in kbuild["objects"].replace(".o", "").split():
            if part not in files or part == f"{self.name}_main":
                continue
            texts: dict[str, str] = {}
            waiting = [files[part]]
            while waiting:
                name = waiting.pop()
                if name not in texts:
                    texts[name] = self.files[name]
                    included = {Path(path).name for path in _INCLUDED.findall(texts[name])}
                    waiting += [file for file in self.files if Path(file).name in included]
            is_named = any("KBUILD_MODNAME" in text for text in texts.values()) or not users.isdisjoint(texts)
            parts[part] = {**texts, "Kbuild": kbuild["flags"], "module": self.name if is_named else ""}
        return parts

    def write(self, folder: Path) -> Path:
        """Write the files below ``folder``, deep enough for paths that lead out; return the module's folder."""
        depth = max(Path(name).parts.count("..") for name in self.files)
        place = folder.joinpath(*["module"] * depth)
        for name, text in self.files.items():
            if not Path(name).is_absolute():
                file = Path(os.path.normpath(place / name))
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)
        return place


@lru_cache(maxsize=1)
def module_folders() -> Sequence[Path]:
    """The folders of ``kmods``. File names are unique among them."""
    return sorted(path for path in data_dir("kmods").iterdir() if path.is_dir())


@lru_cache(maxsize=1)
def templates() -> Mapping[str, Path]:
    """The templates of the lab's modules, by name: NAME of ``NAME.c.j2``, which becomes ``lab_NAME.ko``."""
    files = (file for folder in module_folders() for file in folder.glob(f"*{TEMPLATE}"))
    return dict(sorted((file.name.removesuffix(TEMPLATE), file) for file in files))


def render(template: str, values: Mapping[str, Value]) -> ModuleSource:
    """Render one of the lab's modules; values are identifiers, integers, or tuples of these. Raises UsageError."""
    if template not in templates():
        raise UsageError(unknown("module", template, templates()))
    name = f"lab_{template.replace('-', '_')}"
    file = templates()[template]
    return _of_template(_source(name, _rendered(file, module_folders(), values), module_folders(), file), values)


def check_parameters(values: Mapping[str, Scalar]) -> Mapping[str, Scalar]:
    """Check the load parameters of one of the lab's modules. Raises UsageError for a bad value, as ``render`` does."""
    for key, value in values.items():
        _check(key, value)
    return values


def render_own(file: Path, values: Mapping[str, Value]) -> ModuleSource:
    """Render a user's ``NAME.c.j2`` or ``NAME.c`` as ``own_NAME.ko``. Raises ConfigError, UsageError."""
    stem = file.name.removesuffix(TEMPLATE).removesuffix(".c")
    return render_as(OWN + re.sub(r"[^a-z0-9]", "_", stem.lower())[:_LONGEST_NAME], file, values)


def render_as(name: str, file: Path, values: Mapping[str, Value]) -> ModuleSource:
    """Render a user's module as ``render_own`` does, with the module name ``name``."""
    folders = [file.parent, *module_folders()]
    is_template = file.name.endswith(TEMPLATE)
    main = _rendered(file, folders, values) if is_template else read_c_source(file)
    # For kernel headers that include a module's file, such as the header of its tracepoints.
    source = _source(name, main, folders, file, ("-I$(src)",))
    return _of_template(source, values) if is_template else source


def _of_template(source: ModuleSource, values: Mapping[str, Value]) -> ModuleSource:
    main = f"{source.name}_main.c"
    file = source.origins[main]
    folders = list(dict.fromkeys([file.parent, *module_folders()]))
    return replace(source, rendered={main: partial(line_origins, file, folders, values, source.files[main])})


def _rendered(file: Path, folders: Sequence[Path], values: Mapping[str, Value]) -> str:
    for key, value in values.items():
        _check(key, value)
    environment = template_environment(jinja2.FileSystemLoader(folders))
    try:
        return environment.from_string(read_c_source(file)).render(values)
    except jinja2.UndefinedError as error:
        hint = f"values here: {', '.join(values)}" if values else "exec and shell take values: --set NAME=VALUE"
        what = f"the template needs a value that was not given: {error.message}"
        raise UsageError(what, where=_place(file, error), hint=hint) from None
    except jinja2.TemplateSyntaxError as error:
        # Another file's name: the error is in an included template.
        where = f"{error.filename or file}:{error.lineno}"
        problem = (error.message or "").rstrip(".")
        what = f"not a valid Jinja template: {problem[:1].lower()}{problem[1:]}"
        raise ConfigError(what, where=where, hint=_SYNTAX) from None
    except jinja2.TemplateNotFound as error:
        what = f"the template includes {error.name!r}, which is neither beside it nor among the lab's modules"
        raise ConfigError(what, where=_place(file, error)) from None
    except (
        *(jinja2.TemplateError, ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError),
        *(TypeError, ValueError),
    ) as error:
        raise ConfigError(f"the template fails: {error}", where=_place(file, error)) from None


def _place(file: Path, error: Exception) -> str:
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == "<template>"]
    return f"{file}:{lines[0]}" if lines else str(file)


def _source(name: str, main: str, folders: Sequence[Path], main_file: Path, flags: Sequence[str] = ()) -> ModuleSource:
    """A module's files: the main one, then what it includes; guests' headers come last (``region.h``)."""
    paths = included_as(main, [*folders, data_dir("images") / "guest"])
    shared = {path: file for path, file in paths.items() if not file.samefile(main_file)}
    files = {f"{name}_main.c": main, **{path: read_c_source(file) for path, file in shared.items()}}
    # A source is compiled by itself if its header is included; otherwise it is part of the file that includes it.
    sources = [path for path in map(Path, shared) if path.suffix in (".c", ".S") and not path.is_absolute()]
    parts = [Path(f"{name}_main.c"), *(source for source in sources if str(source.with_suffix(".h")) in shared)]
    objects = " ".join(str(path.with_suffix(".o")) for path in parts)
    flags = [*flags, *([_FORMAT_ERRORS] if "marker.h" in files else [])]
    ccflags = f"ccflags-y := {' '.join(flags)}\n" if flags else ""
    kbuild = f"obj-m := {name}.o\n{name}-y := {objects}\n{ccflags}"
    return ModuleSource(name, {**files, "Kbuild": kbuild}, {f"{name}_main.c": main_file, **shared})


def _check(key: str, value: Value) -> None:
    elements = [(key, value)]
    if isinstance(value, tuple):
        if len(value) > _LONGEST:
            raise UsageError(f"value {key} has {len(value)} elements, and {_LONGEST} are allowed")
        elements = [(f"{key}[{number}]", element) for number, element in enumerate(value)]
    for name, element in elements:
        if isinstance(element, bool) or not isinstance(element, str | int):
            raise UsageError(f"value {name}={element!r} is neither an identifier nor a whole number")
        if isinstance(element, int) and not -_LARGEST < element < _LARGEST:
            raise UsageError(f"value {name}={element} is out of range")
        if isinstance(element, str) and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.]{0,127}", element):
            hint = "a whole number, or letters, digits, '_' and '.'"
            raise UsageError(f"value {name}={element!r} is not an identifier", hint=hint)
