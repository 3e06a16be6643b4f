# SPDX-License-Identifier: GPL-2.0-only
"""What a guest's kernel has reported, or is tainted by, as the error of the command or program that used the guest."""

from __future__ import annotations

from pathlib import Path

from orchestrator.errors import GuestError, GuestOops, GuestPanic
from orchestrator.guest.guest import Guest


def unexpected_trouble(guest: Guest) -> GuestOops | None:
    """The error for unexpected reports of the guest's kernel since boot, or for its taint; None without any."""
    try:
        guest.check_console()
        guest.check_taint(has_reported=bool(guest.reports()))
    except GuestOops as trouble:
        return with_console_log(trouble, guest.console.path)
    return None


def with_console_log(trouble: GuestOops, console: Path) -> GuestOops:
    """The error with the path of the console log, which is then kept, and a hint for the user."""
    hint = "--allow-oops REGEX allows an expected report" if trouble.detail else trouble.hint
    return GuestOops(trouble.what, where=str(console), detail=trouble.detail, hint=hint)


def with_kernel_reports(error: GuestError, guest: Guest) -> GuestError:
    """The error with the reports of the guest's kernel."""
    trouble = None if isinstance(error, GuestPanic) else unexpected_trouble(guest)
    if trouble is None:
        return error
    if isinstance(error, GuestOops):
        return trouble
    error.detail = (*error.detail, trouble.what, *trouble.detail)
    return error
