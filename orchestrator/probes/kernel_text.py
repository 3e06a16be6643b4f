# SPDX-License-Identifier: GPL-2.0-only
"""Is the text of a guest's kernel, and of its modules, still what it was? QEMU reads it from outside."""

from __future__ import annotations

import hashlib

from orchestrator.errors import UnsupportedError
from orchestrator.guest.guest import Guest
from orchestrator.probes.static_branches import Span
from orchestrator.probes.symbols import Symbols
from orchestrator.probes.text_difference import Content, GuestText
from orchestrator.probes.text_layout import TextLayout
from orchestrator.results.contract import TextEvidence


class KernelText:
    """The text of one guest's kernel and of the modules loaded in it, as it was when it was looked at last."""

    def __init__(self, guest: Guest, symbols: Symbols) -> None:
        """Read the text. Modules that are loaded later do not count. Raises EvidenceError, GuestError."""
        self._layout = TextLayout.of(guest, symbols)
        self._text = GuestText(guest, symbols, self._layout)
        self._content = self._text.read()
        self._digest = _digest(self._content)

    def unchanged(self) -> TextEvidence:
        """Compare the text with what it was, and keep it as it is now.

        Static branches that the kernel has switched for itself are in the evidence. Raises EvidenceError for every
        other difference, and for a tracepoint that is not as it was.
        """
        found = self._text.settled(self._content)
        if found.switched:
            self._content, self._digest = found.content, _digest(found.content)
        modules = tuple(span.name for span in self._layout.text[1:])
        return TextEvidence(digest=self._digest, size=_size(self._content), modules=modules, switched=found.switched)


def text_since(guest: Guest, before: bytes, span: Span) -> TextEvidence:
    """Compare the kernel's text with what it was ``before``, at ``span``, for a guest that has worked alone meanwhile.

    Raises as ``KernelText.unchanged`` does, and UnsupportedError where the guest's kernel has its text elsewhere. The
    text of modules is not compared.
    """
    symbols = Symbols.of(guest)
    layout = TextLayout.of_kernel(symbols)
    if layout.text[0] != span:
        raise UnsupportedError(
            "whether the kernel's text is what it was is not known: its vmlinux is of another build",
            hint="build the kernel again, and boot the image of that build",
        )
    found = GuestText(guest, symbols, layout).settled([before])
    return TextEvidence(digest=_digest(found.content), size=_size(found.content), switched=found.switched)


def _size(content: Content) -> int:
    return sum(len(text) for text in content)


def _digest(content: Content) -> str:
    digest = hashlib.sha256()
    for text in content:
        digest.update(text)
    return digest.hexdigest()
