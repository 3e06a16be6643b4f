# SPDX-License-Identifier: GPL-2.0-only
"""The package as others have it: built as a wheel, and installed into an environment of its own."""

from __future__ import annotations

import site
import subprocess
import sys
import venv
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
_LIMIT = 1800.0


def install_wheel(folder: Path) -> Path:
    """The interpreter of an environment in ``folder`` with the package from its wheel, and the other packages of ours.

    The test is skipped where there is no package index.
    """
    venv.create(folder, with_pip=False)
    interpreter = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    built = subprocess.run(
        [*pip, "wheel", "-q", "--no-deps", "-w", str(folder), str(CHECKOUT)],
        capture_output=True,
        text=True,
        timeout=_LIMIT,
    )
    if "Could not find a version that satisfies the requirement hatchling" in built.stderr:
        pytest.skip("no package index to build the wheel with hatchling from")
    assert built.returncode == 0, built.stderr
    (wheel,) = folder.glob("*.whl")
    install = [*pip, "--python", str(interpreter), "install", "-q", "--no-deps", "--no-index", str(wheel)]
    subprocess.run(install, check=True, timeout=_LIMIT)
    # A path in a .pth file has its own .pth files ignored: ours leads to the checkout.
    (packages(interpreter) / "dependencies.pth").write_text("".join(f"{path}\n" for path in site.getsitepackages()))
    return interpreter


def packages(interpreter: Path) -> Path:
    """Where the environment's packages are."""
    return next(interpreter.parents[1].glob("lib/python*/site-packages"))
