# SPDX-License-Identifier: GPL-2.0-only
"""The command that opens a guest's vmcore, with the programs and the debug information that are at hand."""

from __future__ import annotations

import contextlib
import shlex
import shutil
import sys
from pathlib import Path

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.debug_info import kernel_debug_info
from orchestrator.artifacts.ready_kernels import Kernel
from orchestrator.errors import LabError
from orchestrator.guest.vmcore import has_vmcoreinfo


def opening_command(context: BuildContext, kernel: Kernel | None, core: Path) -> str:
    """A command line that can be pasted: drgn's, or gdb's for a vmcore that drgn cannot open.

    drgn is the one that is installed with the lab, which is on no PATH. It gets the kernel's symbols if they are at
    hand; nothing is fetched or built for that. Without the guest's ``kernel`` it gets none.
    """
    symbols = []
    if kernel is not None:
        with contextlib.suppress(LabError):
            symbols.append(str(kernel_debug_info(BuildContext(context.cache, offline=True), kernel)))
    if not has_vmcoreinfo(core):
        return shlex.join(["gdb", *(symbols or ["vmlinux"]), str(core)])
    path = Path(sys.executable).with_name("drgn")
    drgn = str(path) if path.is_file() else shutil.which("drgn")
    line = shlex.join([drgn or "drgn", "-c", str(core), *(word for file in symbols for word in ("-s", file))])
    return line if drgn else f"{line} (which pip install 'probe-lab[source]' installs)"
