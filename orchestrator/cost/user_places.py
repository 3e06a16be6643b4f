# SPDX-License-Identifier: GPL-2.0-only
"""Where subjects are attached in user space, as points of an experiment: in a workload, or in files of an image."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.image_files import ImageFile, file_of_image, is_library_name
from orchestrator.artifacts.program_code import find_in_image
from orchestrator.artifacts.ready_kernels import Kernel
from orchestrator.benchmarks.calls.copied_programs import OWN_PROGRAM
from orchestrator.catalog.user_disks import is_user_disk
from orchestrator.catalog.user_files import LIBRARY_NAME
from orchestrator.cost.existing_places import is_pattern
from orchestrator.cost.in_options import in_options
from orchestrator.cost.subjects import AttachPlace, Subject
from orchestrator.errors import BuildError, UsageError
from orchestrator.probes.point import PROGRAM, Point

_COMMAND = "name a command of the image that runs it: --run 'COMMAND'"


@dataclass(frozen=True)
class UserPlace:
    """A point in user space, as an experiment names it, with the libraries that a workload is linked with for it."""

    point: str
    image: str | None = None
    libraries: tuple[str, ...] = ()


@dataclass(frozen=True)
class UserPlaces:
    """Finds the places of subjects in user space, in an ``image`` if they are in its files.

    Raises UsageError for a file or a symbol that is not there, with the nearest name.
    """

    context: BuildContext
    kernel: Kernel
    image: str

    def in_workload(self, subject: Subject, place: AttachPlace) -> UserPlace:
        """A place that a user's C file reaches: in itself, or in a library that it is linked with."""
        file, symbol = self._named(subject, place)
        if file in (PROGRAM, OWN_PROGRAM):
            return UserPlace(f"{PROGRAM}:{symbol}")
        name = posixpath.basename(file)
        if not is_library_name(name) or re.fullmatch(LIBRARY_NAME, name) is None:
            what = f"{file} is no library, and a workload is linked with libraries alone"
            raise UsageError(what, where=subject.title, hint=_COMMAND)
        image_file = self._file_with(subject, file, symbol)
        if image_file.path != self._file(subject, name).path:
            what = f"{file} is another file than the {name} that the image's loader finds"
            raise UsageError(what, where=subject.title, hint=_COMMAND)
        return UserPlace(f"{name}:{symbol}", self._checked_image(), (name,))

    def in_command(self, subject: Subject, place: AttachPlace) -> UserPlace:
        """A place in a program or library of the image."""
        if place.file is None or place.symbol is None:
            hint = "name the file and what is in it: --point libc.so.6:FUNCTION, --point /usr/bin/PROGRAM:PROVIDER:NAME"
            raise UsageError("where it is in the command's programs is not said", where=subject.title, hint=hint)
        file, symbol = self._named(subject, place)
        if file in (PROGRAM, OWN_PROGRAM):
            what = "it is in a workload of the user's, and a command runs programs of the image"
            raise UsageError(what, where=subject.title, hint="name the workload's source: --workload FILE.c")
        image_file = self._file_with(subject, file, symbol)
        is_name = file.startswith("/") or is_library_name(file)
        return UserPlace(f"{file if is_name else image_file.path}:{symbol}", self._checked_image())

    def _named(self, subject: Subject, place: AttachPlace) -> tuple[str, str]:
        if place.file is None or place.symbol is None:
            hint = "name the program's source and its function: --workload FILE.c --point program:FUNCTION"
            raise UsageError("it is in the program that makes the calls", where=subject.title, hint=hint)
        if is_pattern(place.symbol):
            hint = f"name the one that the calls enter: --point {place.file}:FUNCTION"
            raise UsageError(f"{place.symbol} stands for several functions", where=subject.title, hint=hint)
        return place.file, place.symbol

    def _checked_image(self) -> str:
        if is_user_disk(self.image):
            what = "a disk of your own is not looked into, so where the probe is in it is not known"
            raise UsageError(what, where="--image", hint="name an image of the lab, or a recipe (.yaml)")
        return self.image

    def _file_with(self, subject: Subject, file: str, symbol: str) -> ImageFile:
        image_file, point = self._file(subject, file), Point.of(f"{file}:{symbol}")
        try:
            find_in_image(image_file, point.symbol, point.offset or 0)
        except BuildError as error:
            raise UsageError(error.what, where=subject.title, hint=in_options(error.hint)) from None
        return image_file

    def _file(self, subject: Subject, file: str) -> ImageFile:
        try:
            return file_of_image(self.context, self.kernel.spec.arch, self._checked_image(), file)
        except BuildError as error:
            raise UsageError(error.what, where=subject.title, hint=in_options(error.hint)) from None


def linked(libraries: Sequence[str]) -> dict[str, object]:
    """The key of a benchmark whose workload is linked with these libraries of the image."""
    return {"libraries": list(libraries)} if libraries else {}
