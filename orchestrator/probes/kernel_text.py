# SPDX-License-Identifier: GPL-2.0-only
"""Is the text of a guest's kernel, and of its modules, still what it was? QEMU reads it from outside."""

from __future__ import annotations

import hashlib

from orchestrator.artifacts.kernel_code import KernelCode
from orchestrator.errors import EvidenceError, UnsupportedError
from orchestrator.guest.guest import Guest
from orchestrator.probes.boot_patches import BootedText, booted_text, is_known
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
        found = self._text.settled(lambda content: self._content)
        if found.switched:
            self._content, self._digest = found.content, _digest(found.content)
        modules = tuple(span.name for span in self._layout.text[1:])
        return TextEvidence(digest=self._digest, size=_size(self._content), modules=modules, switched=found.switched)


def text_as_booted(guest: Guest, code: KernelCode, release: str) -> TextEvidence:
    """Compare a kernel's text with its image, for a guest whose text could not be read before it had worked.

    ``release`` is the kernel's, as ``uname -r`` prints it.

    Besides static branches, the places that a boot patches differ; each has code of its kind. Raises EvidenceError for
    every other difference, and for a tracepoint that is enabled; UnsupportedError instead where the image is of
    another build, and for a kernel of another release than the rules are known of: its boot may have patched in what
    differs. The text of modules has no image and is not compared.
    """
    symbols = Symbols.of_image(code)
    layout = TextLayout.of_kernel(symbols)
    booted: BootedText

    def expected(content: Content) -> Content:
        nonlocal booted
        booted = booted_text(code, layout.text[0].start, content[0])
        return [booted.text]

    try:
        found = GuestText(guest, symbols, layout).settled(expected)
    except EvidenceError as error:
        # The banner has the time of the build.
        if guest.get("/proc/version") not in code.image:
            raise UnsupportedError(
                "whether the kernel's text is as its boot has left it is not known: its vmlinux is of another build",
                hint="build the kernel again, and boot the image of that build",
            ) from None
        if is_known(release):
            raise
        raise UnsupportedError(
            f"whether the text of Linux {release} is as its boot has left it is not known: "
            "the rules for what a boot patches are those of Linux 6.1 and 6.12",
            detail=str(error).splitlines(),
        ) from None
    return TextEvidence(
        digest=_digest(found.content), size=_size(found.content), switched=found.switched, patched=dict(booted.patched)
    )


def _size(content: Content) -> int:
    return sum(len(text) for text in content)


def _digest(content: Content) -> str:
    digest = hashlib.sha256()
    for text in content:
        digest.update(text)
    return digest.hexdigest()
