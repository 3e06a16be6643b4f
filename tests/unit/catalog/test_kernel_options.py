# SPDX-License-Identifier: GPL-2.0-only
"""Does a reason name kernels that have what one lacks, of its architecture where there are such, and no others?"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from orchestrator.arch import Arch
from orchestrator.artifacts.kernel_build import merged
from orchestrator.catalog.kernels import kernels, kernels_by_option, without_option

BTF, DIRECT, X86_64 = "CONFIG_DEBUG_INFO_BTF", "CONFIG_DYNAMIC_FTRACE_WITH_DIRECT_CALLS", "CONFIG_X86_64"


@pytest.mark.parametrize(
    ("option", "needed", "arch", "kernels_named"),
    [
        ("CONFIG_FPROBE", (), "i386", "lab-i386-up-bpf and lab-i386-smp-bpf have it"),
        ("CONFIG_FPROBE", (), "x86_64", "lab-x86_64-smp-bpf has it"),
        ("CONFIG_KPROBES_ON_FTRACE", (), "i386", "debian-686 and lab-i386-up-ftrace have it"),
        (BTF, (DIRECT,), "i386", "lab-i386-up-bpf and lab-i386-smp-bpf have it"),
        (BTF, (DIRECT, X86_64), "i386", "debian-amd64 and lab-x86_64-smp-bpf have it"),
        ("CONFIG_OPTPROBES", ("CONFIG_KALLSYMS_ALL",), "i386", "lab-i386-up and lab-i386-smp have it"),
        ("CONFIG_LAB_SYSCALL_HOOK", ("CONFIG_DEBUG_FS",), "i386", "lab-i386-up-hook and lab-i386-smp-hook have it"),
        ("CONFIG_LAB_SYSCALL_HOOK", ("CONFIG_FPROBE",), "i386", None),
        ("CONFIG_UNHEARD_OF", (), "i386", None),
    ],
)
def test_kernels_that_have_it(option: str, needed: Sequence[str], arch: Arch, kernels_named: str | None) -> None:
    sentence = f"this kernel was built without {option}"
    assert without_option(option, needed, arch) == (
        sentence if kernels_named is None else f"{sentence}; {kernels_named}"
    )


@pytest.mark.parametrize("option", kernels_by_option())
def test_every_kernel_that_is_named_is_in_the_catalogue_and_can_have_it(option: str) -> None:
    having = kernels_by_option()[option]
    assert len(set(having)) == len(having)
    chosen = {name for name, spec in kernels().items() if f"\n{option}=y\n" in merged(spec)}
    for name in having:
        assert name in kernels()
        # Of what the lab's fragments choose, those that have it; the rest follows from other options.
        assert not chosen or kernels()[name].packages is not None or name in chosen
