# SPDX-License-Identifier: GPL-2.0-only
"""The ``orchestrator`` command line: loads a command when it is called, and explains wrong usage."""

from __future__ import annotations

import copy
import errno
import functools
import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from importlib import resources
from pathlib import Path
from types import FrameType
from typing import Any, ParamSpec, TypeVar

import typer
import yaml
from typer.core import TyperCommand, TyperGroup

from orchestrator.errors import HostError, Interrupted, LabError, UsageError
from orchestrator.files import found_no_room, full_one, room_left, temporary_folder
from orchestrator.late_import import loaded
from orchestrator.paths import cache_dir, lab_dir
from orchestrator.program import CHECKOUT_SCRIPT, NAME, PROGRAM
from orchestrator.utf8 import use_utf8
from orchestrator.version import __version__

# libyaml parses some ten times faster; a PyYAML built without it has only the pure Python loader.
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@functools.cache
def _own(name: str) -> Mapping[str, Any]:
    """A YAML file of this folder, unchecked: pydantic would add 0.1 s to each start."""
    content: Mapping[str, Any] = yaml.load(resources.files(__package__).joinpath(name).read_text("utf-8"), _Loader)  # noqa: S506  # a SafeLoader
    return content


def examples() -> Mapping[str, Sequence[str]]:
    """The examples by command (``build module``), without the program's name."""
    return _own("examples.yaml")


class WithExamples(TyperCommand):
    """A command whose help ends with its examples."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        is_in_a_group = ctx.parent is not None and ctx.parent.parent is not None
        name = f"{ctx.parent.info_name} {ctx.info_name}" if is_in_a_group else str(ctx.info_name)
        lines = [f"{PROGRAM} {example}" for example in examples()[name]]
        self.epilog = "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])  # after \b lines are kept
        super().format_help(ctx, formatter)


class WithSummaries(TyperGroup):
    """A group whose help has the whole first sentence of each command, and not as much of it as fits into a line."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, command.get_short_help_str(limit=300)) for name, command in self.commands.items()]
            )


TypersError: Any = typer.BadParameter.__base__
"""The base of typer's usage errors. It is click's, or since typer 0.29 that of a copy that typer does not export."""


def _listed() -> Mapping[str, Mapping[str, Any]]:
    commands: Mapping[str, Mapping[str, Any]] = _own("commands.yaml")["commands"]
    return commands


def _with_present_name(words: list[str]) -> list[str]:
    for former, present in _own("commands.yaml")["former"].items():
        names, rest = former.split(), words[len(former.split()) :]
        if words[: len(names)] == names:
            is_help = not {"-h", "--help"}.isdisjoint(rest)
            return [*(word for word in present.split() if not (is_help and word.startswith("-"))), *rest]
    return words


def _with_lone_command(words: list[str]) -> list[str]:
    """``build`` in a kernel's tree, or before options, is ``build tree``."""
    alone = _listed().get(words[0], {}).get("alone") if words else None
    if alone is None or any(not word.startswith("-") or word in ("-h", "--help") for word in words[1:2]):
        return words
    is_called = len(words) > 1 or loaded("library.tree_experiments:tree_around")() is not None
    return [words[0], alone, *words[1:]] if is_called else words


class _Loaded(Mapping[str, Any]):
    """Typer's commands by name, each made on first use: all 36 together take 80 ms."""

    def __init__(self) -> None:
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            description = _listed()[name]
            app = typer.Typer(
                cls=WithSummaries, help=description["summary"], no_args_is_help=True, rich_markup_mode=None
            )
            kind = loaded(f"cli.{description['class']}") if "class" in description else WithExamples
            calls = {name: description["calls"]} if "calls" in description else description["commands"]
            for word, function in calls.items():
                app.command(word, cls=kind)(expected_failures(loaded(f"cli.{function}")))
            group = typer.main.get_group(app)
            self._made[name] = group.commands.get(name, group)
            self._made[name].name = name
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(_listed())

    def __len__(self) -> int:
        return len(_listed())


class Commands(WithSummaries):
    """All commands. A wrong command line ends the program with one sentence and status 2, not with typer's box."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands: Any = _Loaded()  # typer only reads it

    def format_help(self, ctx: Any, formatter: Any) -> None:
        WithSummaries.format_help(self._with_summaries(), ctx, formatter)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        return TyperGroup.shell_complete(self._with_summaries(), ctx, incomplete)

    def _with_summaries(self) -> Commands:
        listing = copy.copy(self)
        listing.commands = {
            name: TyperCommand(name, help=description["summary"]) for name, description in _listed().items()
        }
        return listing

    def main(
        self, args: Sequence[str] | None = None, *names: Any, standalone_mode: bool = True, **settings: Any
    ) -> Any:
        words = _with_lone_command(_with_present_name(list(sys.argv[1:] if args is None else args)))
        called = functools.partial(super().main, words, *names, **settings)
        if not standalone_mode:
            return called(standalone_mode=False)
        try:
            status = called(standalone_mode=False)
        except TypersError as error:
            if type(error).__name__ == "NoArgsIsHelpError":  # a group without a command
                error.show()
            else:
                print(f"error: {_explained(error, *_command(self, words), words)}", file=sys.stderr)
            status = UsageError.exit_status
        except typer.Abort:
            status = 1
        sys.exit(status)


def _command(group: Any, words: Sequence[str]) -> tuple[str, Any]:
    name, command = "", group
    for word in words:
        if not hasattr(command, "commands") or (subcommand := command.commands.get(word)) is None:
            break
        name, command = f"{name} {word}".strip(), subcommand
    return name, command


def _explained(error: Any, name: str, command: Any, words: Sequence[str]) -> UsageError:
    """The lab's error for one of typer's; ``words`` call ``command``, a command or a group of this ``name``."""
    from orchestrator.catalog.data import choices_sentence, unknown  # loads pydantic, which --help does without

    hint = f"see: {PROGRAM} {name} -h" if name else f"see: {PROGRAM} -h"
    param: Any = getattr(error, "param", None)
    option: str | None = getattr(error, "option_name", None)
    message = str(error.format_message())
    if option is not None and type(error).__name__ == "NoSuchOption":
        known = [long for parameter in command.params for long in parameter.opts if long.startswith("--")]
        # For -dry-run the error has only -d.
        typed = next((word.partition("=")[0] for word in words if word.startswith(option)), option)
        return UsageError(unknown("option", typed, [*known, "--help"]), hint=f"{_argument(command, typed)}{hint}")
    if option is not None:  # a missing value, or a value for a switch
        param = next((parameter for parameter in command.params if option in parameter.opts), None)
        if param is not None:
            return UsageError(_takes(param), where=option, hint=hint)
    elif type(error).__name__ == "MissingParameter" and param is not None:
        example = "".join(f"for example {PROGRAM} {example}; " for example in examples().get(name, ())[:1])
        return UsageError(f"{_named(param)} is missing", hint=f"{example}{hint}")
    elif param is not None:
        what, meaning = _refused(error, param)
        return UsageError(what, where=_named(param), hint=f"{meaning}{hint}")
    elif hasattr(command, "commands"):
        word = next((word for word in words[len(name.split()) :] if not word.startswith("-")), "")
        return UsageError(f"unknown command '{word}'; {choices_sentence(word, command.commands)}", hint=hint)
    elif message.startswith("Got unexpected extra argument"):
        return UsageError(f"too many arguments: {message.rpartition('(')[2].rstrip(')')}", hint=hint)
    return UsageError(message[:1].lower() + message[1:].removesuffix("."), hint=hint)


def _named(param: Any) -> str:
    if param.param_type_name == "option":
        return str(param.opts[0])
    return str(param.metavar or param.name).removeprefix("-- ")


def _argument(command: Any, option: str) -> str:
    named = (_named(param).strip("[]") for param in command.params if param.param_type_name == "argument")
    name = next((argument for argument in named if argument.casefold() == option.lstrip("-").casefold()), None)
    return "" if name is None else f"{name} is an argument: give it without {option}; "


def _takes(option: Any) -> str:
    if option.is_flag:
        return "it takes no value"
    value = f": {option.metavar}" if option.metavar else ""
    return f"its value is missing{value}" if option.nargs == 1 else f"expected {option.nargs} values{value}"


def _refused(error: Any, param: Any) -> tuple[str, str]:
    """A sentence with what was found and what is allowed, and a number's meaning."""
    from pydantic import ValidationError  # takes 0.1 s, which --help does without

    from orchestrator.catalog.data import choices_sentence
    from orchestrator.experiment.problems import shown

    kind = getattr(param, "type_descriptor", None)  # older versions of typer lack it
    annotation, choices = getattr(kind, "annotation", None), getattr(kind, "choices", None)
    number = "a whole number" if annotation is int else "a number" if annotation is float else ""
    meaning = f"{param.help.rstrip('.')}; " if number and param.help and error.__cause__ is not None else ""
    if not isinstance(error.__cause__, ValidationError):
        return str(error.message), meaning
    value = error.__cause__.errors(include_url=False)[0]["input"]
    if choices:
        expected = choices_sentence(str(value), map(str, choices))
    elif number and param.max is not None:
        expected = f"expected {number} from {param.min or 0:g} to {param.max:g}"
    elif number:
        expected = f"expected {number}" + ("" if param.min is None else f" from {param.min:g} on")
    elif annotation is datetime:
        expected = "expected a day, such as 2026-11-01"
    else:
        expected = "expected text in UTF-8"  # the only text that pydantic refuses
    return f"found {shown(value)}; {expected}", meaning


_LIMITS = {
    errno.EMFILE: "allow more open files: ulimit -n 1024",
    errno.ENFILE: "the host has too many files open: end other programs",
    errno.EAGAIN: "allow more processes (ulimit -u), or more memory (ulimit -v)",
    errno.ENOMEM: "allow more memory (ulimit -v), or end other programs",
}
"""Hints for limits of the user or the host."""

_NO_THREAD = "can't start new thread"
"""Python's RuntimeError at a limit on processes or memory."""

P = ParamSpec("P")
R = TypeVar("R")


def expected_failures(command: Callable[P, R]) -> Callable[P, R]:
    """The command, but LabErrors, errors of the system and interruptions end it with a message."""

    @functools.wraps(command)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except (LabError, OSError, MemoryError, RuntimeError) as error:
            failure = error if isinstance(error, LabError) else _of_the_system(error)
            if failure is None:
                raise
            print(f"error: {failure}", file=sys.stderr)
            raise typer.Exit(failure.exit_status) from None
        except KeyboardInterrupt as interruption:
            number = interruption.signal if isinstance(interruption, Interrupted) else signal.SIGINT
            print(f"stopped by {signal.Signals(number).name}", file=sys.stderr)
            raise typer.Exit(128 + number) from None

    return guarded


def _of_the_system(error: Exception) -> HostError | None:
    """The error for a limit or failure of the system; None for other errors and for a closed output pipe."""
    if isinstance(error, MemoryError):
        return HostError("out of memory", hint=_LIMITS[errno.ENOMEM])
    if str(error) == _NO_THREAD:
        return HostError(_NO_THREAD, hint=_LIMITS[errno.EAGAIN])
    if not isinstance(error, OSError) or isinstance(error, BrokenPipeError):  # typer ends the program quietly then
        return None
    where = str(error.filename) if error.filename is not None else ""
    if found_no_room(error):
        # The error of a write does not name its file.
        temporary = temporary_folder()
        folder = full_one((cache_dir(), lab_dir(), *(() if temporary is None else (temporary,))))
        hint = "make room there, then run again, or resume with --resume"
        return HostError(f"no space left: {room_left(folder)}", where=where or str(folder), hint=hint)
    hint = _LIMITS.get(error.errno or 0, "")
    return HostError((error.strerror or str(error)).lower(), where=where, hint=hint)


def stop_on_signals() -> None:
    """Make SIGTERM and SIGHUP unwind the program as Ctrl-C does, so that guests end and the store is closed."""

    def stop(number: int, _frame: FrameType | None) -> None:
        raise Interrupted(number)

    signal.signal(signal.SIGTERM, stop)
    # Under nohup SIGHUP stays ignored.
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
        signal.signal(signal.SIGHUP, stop)


app = typer.Typer(
    name=NAME,
    cls=Commands,
    help="A lab for the cost of kernel probes: QEMU guests with named CPUs, real modules, proved numbers.",
    epilog=f"Also `{PROGRAM} test`, `container` (without apt) and `mcp` (for assistants): -h."
    if CHECKOUT_SCRIPT
    else None,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # rich takes half of the time of --help, for a frame
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _print_version(is_given: bool) -> None:
    if is_given:
        typer.echo(f"orchestrator {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(False, "--version", callback=_print_version, is_eager=True, help="Print the version."),
) -> None:
    del version


def _open_closed_streams() -> None:
    """Open /dev/null for streams that the caller closed (``>&-``), which Python sets to None.

    Else the next file to be opened, such as the store, would get the stream's number.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115 - until the program ends


_YOUNG_OBJECTS = 20_000
"""New objects between two looks for garbage. At Python's 700, looking takes a tenth of the time of most commands."""


_PLUGINS_OF_PYDANTIC = "PYDANTIC_DISABLE_PLUGINS"


def main() -> None:
    """Run the command line."""
    gc.set_threshold(_YOUNG_OBJECTS)
    # Else pydantic reads the metadata of everything that is installed, to look for its plugins.
    os.environ.setdefault(_PLUGINS_OF_PYDANTIC, "__all__")
    _open_closed_streams()
    use_utf8()
    stop_on_signals()
    # A shell completes a command by its name, not by its path.
    is_completed = {"--install-completion", "--show-completion"} & set(sys.argv[1:])
    app(prog_name=NAME if is_completed else PROGRAM, complete_var=f"_{NAME}_COMPLETE".upper())
