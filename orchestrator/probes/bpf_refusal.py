# SPDX-License-Identifier: GPL-2.0-only
"""Why a user's BPF program is not attached, from libbpf's and the verifier's words."""

from __future__ import annotations

import re
from collections.abc import Sequence

from orchestrator.catalog.probes import TOGETHER, ProbeKind
from orchestrator.errors import EvidenceError
from orchestrator.plain_text import shown

QUOTED_LINES = 20
"""Last lines of a program's output that an error quotes."""
_SLEEPS = "is not sleepable"
"""The end of bpf_check_attach_target()'s sentence on a function (kernel/bpf/verifier.c)."""
_NOT_SLEEPABLE = 'the function takes no sleepable program: leave .s out of the section, as in SEC("fentry/vfs_read")'
_WITHOUT_OTHERS = "bpfload: once more, without the others\n"
"""Behind it are the loader's words on the program that a row names alone."""
_NO_ARRAY = "<invalid BPF map reference>"
"""libbpf's words, in place of the verifier's, where a program needs a map that was left out."""
_REFUSED_PROGRAM = re.compile(r"^libbpf: prog '(\w{1,128})': BPF program load failed", re.MULTILINE)
_FAILED_PROGRAM = re.compile(r"^libbpf: prog '(\w{1,128})': (failed to \S.{0,150})", re.MULTILINE)
_NOT_PUT = re.compile(r"^bpfload: cannot attach (\w{1,128}) \((\S{1,200})\): (.{1,100})", re.MULTILINE)
_SHOWN = 4
_NOT_LOADED = ("bpfload: the object does not load", "bpfload: libbpf cannot open the object")
_VERIFIERS_REASON = re.compile(r"^(\S.{0,200})\nprocessed \d+ insns", re.MULTILINE)
_REFUSES, _DOES_NOT_LOAD = "the verifier refuses ", " does not load"


def is_not_loaded(reason: str) -> bool:
    """Whether a cell has failed for a program that the kernel does not load, and not later."""
    first = reason.partition("\n")[0]
    return first.startswith(_REFUSES) or first.endswith(_DOES_NOT_LOAD)


def refusal_of(kind: ProbeKind, said: str) -> EvidenceError:
    """The error of a row whose object is not loaded or attached; ``said`` is what the loader has said on stderr."""
    with_others, _, alone = said.rpartition(_WITHOUT_OTHERS)
    # What refuses a program that it goes on in (a tail call) refuses it.
    words = with_others if _NO_ARRAY in alone else alone
    why = _VERIFIERS_REASON.findall(words)
    refused = _REFUSED_PROGRAM.findall(words)
    name = kind.name if words is alone or not refused else f"{refused[-1]}, in which {kind.name} may go on"
    if kind.is_together:
        return _refused_together(kind, words, why[-1] if why else "")
    last = words.rstrip().rpartition("\n")[2]
    what = f"{kind.name}{_DOES_NOT_LOAD if last.startswith(_NOT_LOADED) else ' cannot be attached'}"
    refusal = f"{_REFUSES}{name}: {why[-1]}" if why else what
    return EvidenceError(refusal, hint=_NOT_SLEEPABLE if refusal.endswith(_SLEEPS) else "", detail=last_lines(words))


def _refused_together(kind: ProbeKind, words: str, why: str) -> EvidenceError:
    """The program that stands in the way of those that are attached together, and why."""
    refused, failed, put = _REFUSED_PROGRAM.findall(words), _FAILED_PROGRAM.findall(words), _NOT_PUT.findall(words)
    if put:
        name, section, error = put[-1]
        what = f"{name} of {kind.name} cannot be attached to {section}: {error.lower()}"
    elif refused and why:
        what = f"{_REFUSES}{refused[-1]} of {kind.name}: {why}"
    elif failed:
        what = f"{failed[-1][0]} of {kind.name}{_DOES_NOT_LOAD}: {failed[-1][1]}"
    elif refused:
        what = f"{refused[-1]} of {kind.name}{_DOES_NOT_LOAD}"
    else:
        return EvidenceError(f"{kind.name}{_DOES_NOT_LOAD}", detail=last_lines(words))
    hint = f'leave it out as its tool would: name the others, {TOGETHER}=NAME,NAME, or mark it: SEC("?...")'
    return EvidenceError(what, hint=_NOT_SLEEPABLE if what.endswith(_SLEEPS) else hint, detail=last_lines(words))


def nowhere(kind: ProbeKind, programs: Sequence[str]) -> EvidenceError:
    """The error of programs together of which libbpf attaches none by itself."""
    what = f"libbpf attaches no program of {kind.name} by itself: {', '.join(shown(programs, _SHOWN))}"
    return EvidenceError(what, hint='say where each is attached: SEC("fentry/vfs_read"), SEC("tp/sched/sched_switch")')


def last_lines(text: str) -> list[str]:
    """The last lines of a program's words, for the details of an error."""
    return [line[:200] for line in text.splitlines() if line.strip()][-QUOTED_LINES:]
