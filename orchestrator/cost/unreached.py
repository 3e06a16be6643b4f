# SPDX-License-Identifier: GPL-2.0-only
"""A subject that no call hits on a kernel, so that it has no line."""

from __future__ import annotations

from orchestrator.catalog.kernels import KernelSpec
from orchestrator.cost.subjects import Subject
from orchestrator.errors import UsageError


class UnreachedSubject(UsageError):
    """No call is known that hits the ``subject`` on the ``kernel``, an argument; ``cause`` says why."""

    def __init__(self, subject: Subject, kernel: KernelSpec, cause: UsageError) -> None:
        what = cause.what if cause.where == subject.title else f"{cause.where}: {cause.what}"
        super().__init__(what, where=f"{subject.title} on {kernel.name}", hint=cause.hint)
        self.subject = subject
        self.kernel = kernel.argument
