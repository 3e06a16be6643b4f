# SPDX-License-Identifier: GPL-2.0-only
"""Does the user hear why a module of his cannot be built for a kernel, or is refused by it? One guest tries all.

``golden/refused_modules.txt`` has what ``exec`` says; ``--write-golden`` writes it.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.ready_kernels import Kernel
from orchestrator.errors import LabError
from orchestrator.guest.guest import Guest
from orchestrator.library.guest_modules import GuestModules

FOLDER = Path(__file__).parent
GOLDEN = FOLDER / "golden" / "refused_modules.txt"
_HOST_DEPENDENT = {
    r"\[ *\d+\.\d{6}\]": "[TIME]",
    r"\b[0-9a-f]{24}\b": "KEY",
    r"/\S*/usr/src/linux-headers-[^/]+": "HEADERS",
    r"; did you mean '\w+'\? \[-W": " [-W",  # of the headers' names
    r"Makefile:\d+": "Makefile:N",
    r"Makefile\.(\w+):\d+": r"Makefile.\1:N",
}
COMPILERS_ASIDE = re.compile(r"    ( *\d* \||.*: (note|warning): |cc1: |compilation terminated)")

pytestmark = pytest.mark.guest(kernel="debian-686", cpu="pentium4")


@dataclass(frozen=True)
class Case:
    """A module: its files by name, what is named of them (else the first), its parameters.

    MINE stands for the module's name, which no other case has, and RELEASE for the kernel's. A .ko is compiled from its
    text, with the option ``compiled``. Of those that do not build all but one are ``nightly``: what is said of a
    compiler's words is tested every day in ``tests/unit/artifacts/test_diagnostics.py``, and a build takes a second.
    """

    title: str
    files: Mapping[str, str]
    module: str = ""
    parameters: tuple[str, ...] = ()
    compiled: str = ""
    nightly: bool = False

    def make(self, folder: Path, name: str, release: str) -> Path:
        """Put the files into a folder, and return the path of what is to be loaded."""
        paths = [folder / file.replace("MINE", name) for file in self.files]
        for path, text in zip(paths, self.files.values(), strict=True):
            path.parent.mkdir(parents=True, exist_ok=True)
            content = text.replace("MINE", name).replace("RELEASE", release)
            if self.compiled:
                argv = ["gcc", "-x", "c", "-c", self.compiled, "-o", str(path), "-"]
                subprocess.run(argv, input=content, text=True, check=True)
            else:
                path.write_text(content, "utf-8")
        return folder / self.module if self.module else paths[0]


def test_each_is_refused_with_what_to_do(
    shared_guest: Guest, workshop: BuildContext, guest_kernel: Kernel, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    writes, sections = request.config.getoption("write_golden"), {}
    cases = [Case(**fields) for fields in yaml.safe_load((FOLDER / "refused_modules.yaml").read_text("utf-8"))]
    for number, case in enumerate(cases):
        if case.nightly and not (writes or request.config.getoption("nightly")):
            continue
        folder, name = tmp_path / str(number), f"refused_{number}"
        given = case.make(folder, name, guest_kernel.release)
        error = refusal(GuestModules([str(given)], case.parameters), shared_guest, workshop, guest_kernel)
        said = f"error: {error}".replace(str(folder), "HERE").replace(name, "MINE")
        for pattern, word in {re.escape(guest_kernel.release): "RELEASE", **_HOST_DEPENDENT}.items():
            said = re.sub(pattern, word, said)
        lines = [line for line in said.splitlines() if not COMPILERS_ASIDE.match(line)]
        options = [f"--param {parameter}" for parameter in case.parameters]
        title = " ".join([f"# {case.title}", *options])
        sections[title] = "\n".join([title, *lines, f"status {error.exit_status}", "", ""])
        assert shared_guest.run(["grep", f"^{name} ", "/proc/modules"]).status == 1, case.title
    if writes:
        GOLDEN.parent.mkdir(exist_ok=True)
        GOLDEN.write_text("".join(sections.values()), "utf-8")
    golden = re.split(r"(?m)^(?=# )", GOLDEN.read_text("utf-8"))[1:]
    known = {section.partition("\n")[0]: section for section in golden}
    assert sections == {title: known.get(title) for title in sections}
    assert len(known) == len(cases)


def refusal(modules: GuestModules, guest: Guest, workshop: BuildContext, kernel: Kernel) -> LabError:
    """What is wrong with modules, as ``exec`` finds out."""
    try:
        modules.check()
        modules.build(workshop, kernel)
        modules.load(guest, 60.0)
    except LabError as error:
        return error
    pytest.fail(f"{modules.paths} is accepted")
