# SPDX-License-Identifier: GPL-2.0-only
"""Are a kernel's fragments put together, checked and read back as they stand?"""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.artifacts.kernel_build import features, merged, not_granted
from orchestrator.catalog.kernels import kernel, kernels, read_config
from orchestrator.errors import ConfigError
from orchestrator.paths import data_dir


def test_every_lab_kernel_has_all_its_fragments() -> None:
    for spec in kernels().values():
        assert (spec.packages is None) == (spec.source is not None) == bool(spec.fragments)
        if spec.fragments:
            assert "CONFIG_KPROBES=y" in merged(spec)


def test_another_version_has_every_kernel_of_the_first() -> None:
    named = kernels()
    other = {name.removesuffix("@6.12") for name in named if name.endswith("@6.12")}
    usual = {name for name, spec in named.items() if spec.version == "6.1" and "@" not in name}
    assert other == usual - {"debian-686", "debian-686-pae"}
    assert named["lab-i386-up@6.12"].source == "linux-source-6.12"
    assert "CONFIG_BASE_FULL=y" in merged(named["lab-i386-up"])
    assert "CONFIG_BASE_FULL" not in merged(named["lab-i386-up@6.12"])


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("lab-i386-up-hook@7.2", "kernel 'lab-i386-up-hook' is of Linux 6.1, 6.12 or 7.3, and not of 7.2"),
        (
            "lab-i386-smp-kpcache@newest",
            "kernel 'lab-i386-smp-kpcache' is of Linux 6.1, 6.12 or 7.3, and not of newest",
        ),
        ("lab-i386-up@latest", "kernel 'lab-i386-up' is of Linux 6.1 or 6.12, and not of latest"),
        ("lab-i386-up@newest", "kernel 'lab-i386-up' is of Linux 6.1 or 6.12, and not of newest"),
        ("debian-amd64@7", "kernel 'debian-amd64' is of Linux 6.1 or 6.12, and not of 7"),
    ],
)
def test_a_version_that_a_kernel_has_not_is_named(name: str, words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        kernel(name)
    assert refused.value.what == words


def test_a_version_without_an_entry_is_as_the_nearest_before_it() -> None:
    newer, older = kernel("debian-amd64@7.3"), kernel("debian-amd64@6.5")
    assert (newer.version, newer.origin, newer.is_searched) == ("7.3", "linux-image-7.3*-amd64", True)
    assert (newer.entry_offset, newer.kernel_parameters) == (9, ["randomize_kstack_offset=off"])
    assert (older.entry_offset, older.kernel_parameters) == (5, [])
    assert newer.title == "Debian's x86_64 kernel, Linux 7.3"
    assert kernel("debian-amd64@newest").entry_offset == 9
    assert kernel("debian-amd64@6.1") == kernel("debian-amd64")
    assert kernel("debian-amd64@6.12") == kernels()["debian-amd64@6.12"]
    lab, known = kernel("lab-x86_64-smp-bpf@7.3"), kernel("lab-x86_64-smp-bpf@6.12")
    assert (lab.source, lab.without) == ("linux-source-7.3", [])
    assert [one for one in lab.fragments if one != "lazy"] == known.fragments
    wanted = merged(lab)
    assert wanted.index("CONFIG_PREEMPT_LAZY=y") < wanted.index("CONFIG_PREEMPT_NONE=y")
    assert lab.title.startswith("x86_64 for several CPUs, not or lazily preemptible, with the function tracer, ")
    assert "CONFIG_KUNIT_AUTORUN_ENABLED=y" in merged(kernel("lab-i386-up-kunit@7.3"))


def test_a_patched_kernel_takes_the_patches_of_its_version() -> None:
    assert kernel("lab-i386-smp-kpcache@7.3").patches == [
        "kprobe-hash-bits",
        "7.3/kprobe-cache",
        "kprobe-cache-aggregator",
        "7.3/kprobe-cache-interrupts",
        "kprobe-cache-nmi",
    ]
    assert kernel("lab-i386-smp-kpcache@6.12").patches == kernel("lab-i386-smp-kpcache").patches
    folder = data_dir("images") / "patches"
    used = set()
    for spec in kernels().values():
        for version in spec.patched:
            used |= set(kernel(f"{spec.name.partition('@')[0]}@{version}").patches)
    assert {str(file.relative_to(folder).with_suffix("")) for file in folder.rglob("*.patch")} == used


def test_a_later_fragment_has_the_last_word() -> None:
    assert not_granted("CONFIG_A=y\n# CONFIG_A is not set\n", {}) == []
    assert not_granted("# CONFIG_A is not set\nCONFIG_A=m\n", {"CONFIG_A": "m"}) == []


@pytest.mark.parametrize(
    ("wanted", "config", "words"),
    [
        ("CONFIG_A=y\n", {}, "CONFIG_A: wanted y, got off"),
        ("# CONFIG_A is not set\n", {"CONFIG_A": "y"}, "CONFIG_A: wanted off, got y"),
        ("CONFIG_HZ=100\n", {"CONFIG_HZ": "250"}, "CONFIG_HZ: wanted 100, got 250"),
    ],
)
def test_an_option_that_was_not_taken_is_named(wanted: str, config: dict[str, str], words: str) -> None:
    assert not_granted(wanted, config) == [words]


def test_what_another_version_has_instead_is_listed() -> None:
    wanted = "CONFIG_A=y\nCONFIG_GONE=y\n# CONFIG_B is not set\n"
    listed = not_granted(wanted, {"CONFIG_A": "y", "CONFIG_B": "y"})
    assert listed == ["CONFIG_GONE: wanted y, got off", "CONFIG_B: wanted off, got y"]


def test_a_configuration_is_read_as_it_is_written(tmp_path: Path) -> None:
    file = tmp_path / ".config"
    file.write_text('# CONFIG_A is not set\nCONFIG_B=y\nCONFIG_NAME="a b"\n')
    assert read_config(file) == {"CONFIG_B": "y", "CONFIG_NAME": '"a b"'}


@pytest.mark.parametrize(
    ("config", "booster", "preemption"),
    [
        ({"CONFIG_KPROBES": "y", "CONFIG_PREEMPT_NONE": "y"}, "yes", "none"),
        ({"CONFIG_KPROBES": "y", "CONFIG_PREEMPT": "y", "CONFIG_PREEMPTION": "y"}, "no", "full"),
        ({"CONFIG_KPROBES": "y", "CONFIG_PREEMPT_VOLUNTARY": "y"}, "yes", "voluntary"),
        (
            {
                "CONFIG_KPROBES": "y",
                "CONFIG_PREEMPT_VOLUNTARY": "y",
                "CONFIG_PREEMPT_DYNAMIC": "y",
                "CONFIG_PREEMPTION": "y",
            },
            "no",
            "dynamic",
        ),
        ({"CONFIG_KPROBES": "y", "CONFIG_PREEMPT_LAZY": "y", "CONFIG_PREEMPTION": "y"}, "no", "lazy"),
        ({"CONFIG_PREEMPT_LAZY": "y", "CONFIG_PREEMPT_DYNAMIC": "y", "CONFIG_PREEMPTION": "y"}, "no", "dynamic"),
        ({"CONFIG_PREEMPT": "y", "CONFIG_PREEMPT_RT": "y", "CONFIG_PREEMPTION": "y"}, "no", "real time"),
        ({}, "no", "none"),
    ],
)
def test_what_a_kernel_can_do_follows_from_its_configuration(
    config: dict[str, str], booster: str, preemption: str
) -> None:
    can = features(config)
    assert (can["booster"], can["preemption"]) == (booster, preemption)


def test_how_kprobes_are_found_follows_from_its_configuration() -> None:
    patched = features({"CONFIG_KPROBE_HASH_BITS": "12", "CONFIG_KPROBE_CACHE": "y"})
    assert (patched["kprobe lists"], patched["kprobe cache"]) == ("2^12", "yes")
    assert (features({"CONFIG_LAB_MARKERS": "y"})["markers"], features({})["markers"]) == ("yes", "no")
    assert (features({})["kprobe lists"], features({})["kprobe cache"]) == ("2^6", "no")
