# SPDX-License-Identifier: GPL-2.0-only
"""The kernel's build system, called for modules outside of its tree."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.artifacts.compiler import compiling_in
from orchestrator.artifacts.kernels import Kernel
from orchestrator.errors import BuildError, UnsupportedError
from orchestrator.paths import kbuild_takes
from orchestrator.process import Finished, run
from orchestrator.scratch import ScratchFolder

_BUILD_LIMIT = 300.0
_NEWER_FLAGS = {"CONFIG_CC_HAS_MIN_FUNCTION_ALIGNMENT": "-fmin-function-alignment=16"}
"""Options that a kernel has by its compiler, with flags that others do not know; Linux does without them."""


class NoHeadersError(BuildError, UnsupportedError):
    """No module can be built for a kernel, as its headers are not to be had."""


@dataclass(frozen=True)
class Places:
    """Paths of the kernel's headers, of their makefile and of the compiler's folder (None: the PATH's)."""

    headers: Path
    makefile: Path
    tools: Path | None

    @classmethod
    def of(cls, kernel: Kernel) -> Places:
        """The places as they are in the cache."""
        return cls(kernel.headers, kernel.headers_makefile, kernel.toolchain.folder)


def make_modules(kernel: Kernel, places: Places, folder: Path, variables: Sequence[str] = ()) -> Finished:
    """Run make on the Kbuild in ``folder``, whatever its status; ``variables`` are of the form ``NAME=VALUE``.

    Raises NoHeadersError.
    """
    if not places.headers.is_dir():
        raise NoHeadersError(f"no module can be built for {kernel.release}: Debian's archive no longer has its headers")
    tools = kernel.toolchain.for_make(places.tools)
    where = ["-C", str(places.headers), "-f", str(places.makefile), f"M={folder}"]
    if places.makefile.parent != places.headers:
        # Else a Makefile since Linux 6.13 takes the source's folder for that of the configured headers.
        where.append(f"KBUILD_OUTPUT={places.headers}")
    return run(
        ["make", *where, *tools, *_other_options(kernel), *variables, "modules"],
        time_limit=_BUILD_LIMIT,
        environment=compiling_in(folder),
    )


def _other_options(kernel: Kernel) -> list[str]:
    """Options of a packaged kernel that are off for modules: what takes pahole, and what this compiler cannot do."""
    if kernel.spec.packages is None:
        return []
    lacking = ["CONFIG_DEBUG_INFO_BTF_MODULES"]
    lacking += [option for option, flag in _NEWER_FLAGS.items() if not kernel.toolchain.takes(flag)]
    return [f"{option}=" for option in lacking if kernel.config.get(option) == "y"]


def strip_module(kernel: Kernel, file: Path) -> None:
    """Remove a module's debug information: it is left with a tenth of the size, and no path of this host."""
    stripped = run([kernel.toolchain.program("strip"), "--strip-debug", str(file)], time_limit=_BUILD_LIMIT)
    if stripped.status != 0:
        raise BuildError(f"strip fails on {file.name}", detail=stripped.complaint())


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """A temporary folder whose path the kernel's build system accepts."""
    standard = tempfile.gettempdir()
    parent = standard if kbuild_takes(Path(standard)) else "/tmp"  # noqa: S108 - mkdtemp makes it private
    with ScratchFolder("orchestrator-build-", Path(parent)) as scratch:
        yield scratch


@contextlib.contextmanager
def plain_places(kernel: Kernel) -> Iterator[Places]:
    """The places, by links or copies where the kernel's build system does not accept the cache's path."""
    places = Places.of(kernel)
    with scratch_folder() as scratch:
        if places.tools is not None and not kbuild_takes(places.tools):
            (scratch / "tools").symlink_to(places.tools)
            places = replace(places, tools=scratch / "tools")
        if not kbuild_takes(places.headers):
            # Links in the headers are relative to the root of the unpacked packages, usr/src/NAME above them.
            root = kernel.headers.parents[2]
            shutil.copytree(root / "usr", scratch / "usr", symlinks=True)
            headers, makefile = (scratch / path.relative_to(root) for path in (places.headers, places.makefile))
            places = replace(places, headers=headers, makefile=makefile)
        yield places
