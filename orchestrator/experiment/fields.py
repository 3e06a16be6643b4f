# SPDX-License-Identifier: GPL-2.0-only
"""Validators of an experiment file's values, with their error messages."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
)

from orchestrator.catalog import kernel_variants, tools
from orchestrator.catalog import probes as user_probe
from orchestrator.catalog.cpus import cpus
from orchestrator.catalog.data import choices_sentence, nearest
from orchestrator.catalog.image_recipes import image as image_recipe
from orchestrator.catalog.image_recipes import images
from orchestrator.catalog.kernels import is_path, kernels, placed
from orchestrator.catalog.kernels import kernel as kernel_spec
from orchestrator.catalog.user_disks import find_disk, is_user_disk
from orchestrator.catalog.user_files import LIBRARY_NAME, named_modinfo
from orchestrator.errors import ConfigError
from orchestrator.experiment.problems import Problem, conflict, mismatch, problems_of, refused, shown, wrong
from orchestrator.paths import user_path
from orchestrator.plain_text import GUEST_SIZES, guest_mib
from orchestrator.probes.point import PROGRAM, Point
from orchestrator.program import PROGRAM as CALLED

QemuCpuNames = Callable[[], Collection[str]]

MAX_ENTRIES = 1000
EXECUTED = "executed"
"""The value of ``points`` for all functions that the calls enter."""
DEFAULT = "default"
"""The kernel command line without parameters of the experiment's own."""
NO_OPTIONS = "{}"

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
_FILE = rf"(?:{PROGRAM}|{LIBRARY_NAME}|(?:/[A-Za-z0-9_+-][A-Za-z0-9_.+-]{{0,63}}){{1,12}}):"
_POINT = re.compile(
    rf"((?:{_FILE})?[A-Za-z_][A-Za-z0-9_.]{{0,127}})(?:\+(0x[0-9a-fA-F]{{1,6}}|0|[1-9][0-9]{{0,6}}))?"
    rf"|{_FILE}[A-Za-z_][A-Za-z0-9_]{{0,63}}:[A-Za-z_][A-Za-z0-9_]{{0,127}}"
    r"|[A-Za-z_][A-Za-z0-9_.]{0,127}\+\*"
)
_MODULE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,54}")
"""A module's name has at most 55 bytes (MODULE_NAME_LEN of include/linux/module.h, on 64 bits)."""
_QEMU_CPU = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")

ItemT = TypeVar("ItemT", bound=Hashable)


@dataclass(frozen=True)
class ValidationContext:
    """Names outside the catalogue that values are checked against; the context of a pydantic validation.

    ``qemu_cpu_names`` is called only for a CPU that the catalogue lacks. ``benchmarks`` has the names of all
    benchmarks; ``rows`` maps the benchmarks' own rows to their benchmarks.
    """

    qemu_cpu_names: QemuCpuNames | None = None
    benchmarks: Collection[str] = ()
    rows: Mapping[str, str] = field(default_factory=dict)


class Strict(BaseModel):
    """A part of an experiment file: frozen, without type conversion or unknown keys."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", defer_build=True)


def validation_context(info: ValidationInfo) -> ValidationContext:
    """The context of a validation, by default an empty one."""
    return info.context if isinstance(info.context, ValidationContext) else ValidationContext()


@dataclass(frozen=True)
class OneOf:
    """Checks that a value is one of the choices."""

    choices: Callable[[], Iterable[str]]

    def __call__(self, value: object) -> object:
        allowed = list(self.choices())
        if value not in allowed:
            raise mismatch(value, choices_sentence(str(value), allowed))
        return value


@dataclass(frozen=True)
class Whole:
    """Checks that a value is a whole number from ``low`` to ``high``."""

    low: int
    high: int
    unit: str = ""

    def __call__(self, value: object) -> object:
        if not isinstance(value, int) or isinstance(value, bool) or not self.low <= value <= self.high:
            of_unit = f", in {self.unit}" if self.unit else ""
            raise mismatch(value, f"expected a whole number from {self.low} to {self.high}{of_unit}{_notation(value)}")
        return value


def one_of(choices: Callable[[], Iterable[str]]) -> BeforeValidator:
    """A validator for one of these words."""
    return BeforeValidator(OneOf(choices))


def whole(low: int, high: int, unit: str = "") -> BeforeValidator:
    """A validator for a whole number from ``low`` to ``high``."""
    return BeforeValidator(Whole(low, high, unit))


def _notation(value: object) -> str:
    if not isinstance(value, str) or not value[:1].isdigit():
        return ""
    return "; leave out the quotes" if re.fullmatch(r"[1-9][0-9]{0,17}", value) else "; write plain decimal digits"


def name(value: object) -> object:
    """At most 64 small letters, digits and hyphens, as text."""
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise mismatch(value, f"expected at most 64 small letters, digits and hyphens{_other_name(value)}")
    return value


def _other_name(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return "; put a number in quotes"
    suggestion = re.sub(r"[^a-z0-9]+", "-", value[:200].lower()).strip("-") if isinstance(value, str) else ""
    return f", such as {suggestion}" if _NAME.fullmatch(suggestion) else ""


def description(value: object) -> object:
    """Text of at most 1000 characters, in one line or several."""
    if value is not None and not (isinstance(value, str) and len(value) <= 1000):
        raise mismatch(value, "expected text of at most 1000 characters")
    if isinstance(value, str) and not value.replace("\n", "").isprintable():
        raise mismatch(value, "expected text without control characters")
    return value


def memory(value: object) -> object:
    """A size from ``64M`` to ``4G``, in ``M`` or ``G``, or a number of MiB."""
    mib = guest_mib(value)
    if mib is None:
        raise mismatch(value, GUEST_SIZES)
    return f"{mib}M"  # one spelling, so that 1G and 1024M are the same machine


def cpu(value: object, info: ValidationInfo) -> object:
    """A CPU of ``./lab list cpus``, or a CPU model of QEMU; put a name that is a number in quotes."""
    if not isinstance(value, str):
        raise mismatch(value, "expected a CPU's name; put a name that is a number in quotes")
    if value in cpus():
        return value
    ask_qemu = validation_context(info).qemu_cpu_names
    qemu_names = ask_qemu() if ask_qemu else ()
    if value in qemu_names and _QEMU_CPU.fullmatch(value):
        return value
    names = cpus() if nearest(value, cpus()) else qemu_names
    raise mismatch(value, f"allowed: {', '.join(cpus())}, or a CPU model of QEMU's own", names)


def kernel(value: object) -> object:
    """A kernel of ``./lab list kernels``, or a path with a slash to your own, which ``NAME=PATH`` names.

    ``KERNEL+WORD`` has a parameter (``+mitigations=auto``), an option (``+CONFIG_KFENCE=y``) or a file of options
    (``+./mine.config``) of its own. Paths become absolute.
    """
    if not isinstance(value, str) or not value.isprintable():
        raise mismatch(value, "expected a kernel's name")
    plain = kernel_variants.split(value)[0]
    if not is_path(value) and plain.partition("@")[0] not in kernels():
        path = "./linux/build, a build tree of your own or an image in it"
        raise mismatch(value, f"{choices_sentence(plain, kernels())}; all: {CALLED} list kernels; or a path: {path}")
    try:
        named = placed(value, lambda path: str(user_path(path)))
        spec = kernel_spec(named)
    except ConfigError as error:
        raise refused(error) from None
    return named if is_path(value) else spec.argument


def parameters(value: object) -> object:
    """A kernel command line: parameters with spaces between them, or ``default``, none besides the lab's own.

    Parameters that would break the exact clock, the proofs or the channel are refused.
    """
    if not isinstance(value, str) or not value.isprintable():
        raise mismatch(value, "expected kernel parameters, such as mitigations=auto, or default")
    words = [] if value == DEFAULT else value.split()
    try:
        checked = [kernel_variants.checked_parameter(word) for word in words]
    except ConfigError as error:
        raise refused(error) from None
    return " ".join(checked) or DEFAULT


def options(value: object) -> object:
    """A mapping of options (``{CONFIG_KFENCE: y}``), one option, the path of a file of options, or ``{}``, none."""
    if isinstance(value, dict):
        words = [f"{key}={option}" for key, option in value.items()]
    else:
        words = (
            [str(user_path(value)) if value.endswith(kernel_variants.SUFFIX) else value]
            if isinstance(value, str)
            else [""]
        )
    is_option = all(word.startswith("CONFIG_") or word.endswith(kernel_variants.SUFFIX) for word in words)
    joined = kernel_variants.MARK.join(words)
    if not is_option or not joined.isprintable() or joined.count(kernel_variants.MARK) != max(len(words) - 1, 0):
        form = "expected options, such as {CONFIG_KFENCE: y}, or the path of a file of them, ./NAME.config"
        raise mismatch(value, form)
    try:
        kernel_variants.variant(words)
    except ConfigError as error:
        raise refused(error) from None
    return joined or NO_OPTIONS


def image(value: object) -> object:
    """An image of ``./lab build images``, or a path with a slash to your own recipe or disk."""
    if not isinstance(value, str) or not value.isprintable():
        raise mismatch(value, "expected an image's name")
    if "/" not in value and value not in images():
        raise mismatch(value, f"{choices_sentence(value, images())}; or a path: ./mine.yaml, a recipe, or ./mine.qcow2")
    if "/" not in value:
        return value
    try:
        if is_user_disk(value):
            return str(find_disk(value).file)
        image_recipe(value)
        return str(user_path(value))
    except ConfigError as error:
        raise refused(error) from None


def kernel_module(value: object) -> object:
    """The name of a module of the kernel's own, such as ``vfat``."""
    if not isinstance(value, str) or not _MODULE.fullmatch(value):
        raise mismatch(value, "expected the name of a module of the kernel's own, such as vfat")
    return value.replace("-", "_")  # one spelling, the kernel's


def benchmark(value: object, info: ValidationInfo) -> object:
    """A benchmark's name."""
    known = validation_context(info).benchmarks
    if not isinstance(value, str) or (value not in known and known):
        raise mismatch(value, choices_sentence(str(value), known))
    return value


def probe(value: object, info: ValidationInfo) -> object:
    """A probe, a row of the benchmark, a tool, a bpftrace one-liner, or the path of your module, programs or script.

    A module's parameters may follow its path. Paths become absolute.
    """
    rows = validation_context(info).rows
    if isinstance(value, str) and user_probe.is_one_liner(value):
        return _one_liner(value)
    if isinstance(value, str) and (tools.is_tool(value) or tools.is_script(value)):
        return _tool(value)
    if not isinstance(value, str) or not value.isprintable():
        raise mismatch(value, "expected a probe's name; put a bpftrace one-liner in quotes")
    if not user_probe.is_path(value):
        if user_probe.probe_in_catalogue(value) is None and value not in rows:
            path, text = user_probe.split_path(value)
            if user_probe.is_module_folder(user_path(path)) or path.endswith(
                (*user_probe.SUFFIXES, *user_probe.BPF_SUFFIXES)
            ):
                raise mismatch(value, f"name your own file by a path with a slash: ./{path}")
            if user_probe.may_be_one_liner(value):
                raise mismatch(value, f"a one-liner of bpftrace is '{user_probe.PREFIX} PROBE {{ ACTION }}'")
            name, _, text = value.partition(" ")
            if "=" in text and user_probe.probe_in_catalogue(name) is not None:
                raise mismatch(value, f"only modules of your own take parameters, and {name} is a probe of the lab")
            alike = [row for row in rows if row.partition(".")[0] == value.partition(".")[0]]
            sentence = f"{choices_sentence(value, [*user_probe.probes(), *alike])}; all: {CALLED} list probes"
            raise mismatch(value, f"{sentence}; or a path: ./mine.c.j2, a module of your own, or ./mine.bpf.c")
        return value
    try:
        kind = _own_probe(value)
    except ConfigError as error:
        raise refused(error) from None
    member = f":{kind.member}" if kind.member else ""
    return user_probe.with_path(f"{kind.file or kind.bpf_file}{member}", user_probe.written(kind.parameters))


def _one_liner(value: str) -> str:
    try:
        return f"{user_probe.PREFIX} {user_probe.one_liner(value)}"
    except ConfigError as error:
        raise refused(error) from None


def _tool(value: str) -> str:
    try:
        user_probe.probe_kind(value)
        return tools.tool_row(value) if tools.is_tool(value) else tools.script_row(value)
    except ConfigError as error:
        raise refused(error) from None


def _own_probe(value: str) -> user_probe.ProbeKind:
    kind = user_probe.probe_kind(value)
    if kind.file is not None and kind.file.suffix == ".ko":
        named_modinfo(kind.file)
    return kind


def point(value: object) -> object:
    """A function of the kernel, the calling program or a library, or an offset into it.

    ``SYMBOL``, ``SYMBOL+BYTES``, ``SYMBOL+*``, ``FILE:SYMBOL``, ``FILE:SYMBOL+BYTES``, ``FILE:PROVIDER:NAME``, where
    ``FILE`` is ``program``, a library's name, or the path of a program or library in the image.
    """
    match = _POINT.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise mismatch(
            value,
            "expected a kernel function, with or without an offset, such as do_nanosleep+0x5, do_nanosleep+* for each "
            "of its instructions, or program:FUNCTION, or program:PROVIDER:NAME, or the same in a library, such as "
            "libc.so.6:malloc",
        )
    return str(Point.of(match[0]))  # one spelling


def points(value: object) -> object:
    """A list of 1 to 1000 different points, or the word ``executed``."""
    if value == EXECUTED:
        return value
    if isinstance(value, str):
        raise mismatch(value, f"expected a list of kernel functions, or {EXECUTED}")
    try:
        return _POINTS.validate_python(value)
    except ValidationError as error:
        raise conflict(problems_of(error, lambda path: "")) from None


def entries(value: object) -> object:
    """A list of 1 to 1000 entries."""
    if not isinstance(value, list | tuple) or not 1 <= len(value) <= MAX_ENTRIES:
        described = f"{len(value)} entries" if isinstance(value, list | tuple) else shown(value)
        raise wrong(f"found {described}; expected a list of 1 to {MAX_ENTRIES} entries{_as_list(value)}")
    return tuple(value)  # YAML gives lists, a frozen model keeps tuples


def _as_list(value: object) -> str:
    if isinstance(value, dict) and value and all(isinstance(part, str | int) for part in value.values()):
        entry = ", ".join(f"{key}: {part}" for key, part in value.items())
        return f", such as [{{{entry}}}]" if len(entry) <= 80 and entry.isprintable() else ""
    words = value.replace(",", " ").split() if isinstance(value, str) and len(value) <= 80 else []
    return f", such as [{', '.join(words)}]" if words and all(word.isprintable() for word in words) else ""


def _distinct(items: tuple[ItemT, ...]) -> tuple[ItemT, ...]:
    first = {item: index for index, item in reversed(list(enumerate(items)))}
    twice = [index for index, item in enumerate(items) if first[item] != index]
    if twice:
        raise conflict([Problem((index,), "a duplicate of an entry above") for index in twice])
    return items


Entries = Annotated[tuple[ItemT, ...], BeforeValidator(entries), AfterValidator(_distinct)]

_POINTS: TypeAdapter[tuple[str, ...]] = TypeAdapter(Entries[Annotated[str, BeforeValidator(point)]])
