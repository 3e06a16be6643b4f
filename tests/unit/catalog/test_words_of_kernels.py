# SPDX-License-Identifier: GPL-2.0-only
"""Kernels with parameters and options of their own: how they are written, what they mean, what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.catalog.kernel_variants import checked_parameter, joined, reserved_parameters, split, variant
from orchestrator.catalog.kernels import is_path, kernel, kernels, placed
from orchestrator.errors import ConfigError
from orchestrator.guest.machine import machine_facts

WORDS = st.sampled_from(["mitigations=auto", "retbleed=auto,nosmt", "nopti", "CONFIG_KFENCE=y", "./mine.config"])
PLAIN = st.sampled_from(["debian-686", "debian-amd64@6.12", "lab-i386-up@7.3", "./linux/build", "mine=./linux"])


@given(PLAIN, st.lists(WORDS, max_size=4))
def test_a_kernel_and_its_words_are_told_apart(plain: str, words: list[str]) -> None:
    name = joined(plain, words)
    assert split(name) == (plain, tuple(words))
    assert is_path(name) == ("/" in plain)


def test_an_existing_path_has_no_words(tmp_path: Path) -> None:
    tree = tmp_path / "linux+next"
    assert split(f"{tree}") == (str(tmp_path / "linux"), ("next",))
    tree.mkdir()
    assert split(f"{tree}") == (str(tree), ())
    assert split(f"mine={tree}+nopti") == (f"mine={tree}", ("nopti",))
    assert split(f"{tree}+{'x' * 300}+nopti") == (str(tree), ("x" * 300, "nopti"))


def test_paths_in_a_name_are_placed() -> None:
    assert placed("mine=./linux+nopti+./a.config", lambda path: f"/x/{path[2:]}") == "mine=/x/linux+nopti+/x/a.config"
    assert placed("debian-686+nopti", lambda path: "wrong") == "debian-686+nopti"


def test_a_variant_is_the_kernel_with_other_words() -> None:
    plain, spec = kernel("lab-i386-up"), kernel("lab-i386-up@6.1+CONFIG_KFENCE=y+CONFIG_PREEMPT=n+mitigations=auto")
    assert spec.name == "lab-i386-up+CONFIG_KFENCE=y+CONFIG_PREEMPT=n+mitigations=auto" == spec.argument
    assert (spec.of_catalogue, spec.source, spec.fragments) == (plain.name, plain.source, plain.fragments)
    assert spec.options == "CONFIG_KFENCE=y\n# CONFIG_PREEMPT is not set\n"
    assert spec.kernel_parameters == [*plain.kernel_parameters, "mitigations=auto"]


def test_a_file_of_options_is_named_by_its_stem(tmp_path: Path) -> None:
    file = tmp_path / "kasan.config"
    file.write_text("# for 64 bits\nCONFIG_KASAN=y\n\n# CONFIG_KFENCE is not set\nCONFIG_NR_CPUS=4\n")
    spec = kernel(f"lab-i386-up+{file}")
    assert spec.name == "lab-i386-up+kasan.config"
    assert spec.options == "CONFIG_KASAN=y\nCONFIG_NR_CPUS=4\n# CONFIG_KFENCE is not set\n"


def test_names_of_cells_can_have_every_title() -> None:
    long = [f"CONFIG_A{'B' * 30}{number}=y" for number in range(9)]
    title = variant(long).title
    assert len(title) <= 80
    assert title != variant([*long, "CONFIG_C=y"]).title
    assert variant(['CONFIG_X="a b"', "y=1:2"]).title == "CONFIG_X=-a-b-+y=1-2"


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("debian-686+CONFIG_KFENCE=y", "debian-686 is Debian's package, already built"),
        ("lab-i386-up+CONFIG_KFENCE=m", "set it to y"),
        ("lab-i386-up+CONFIG_KFENCE=yes", "an option is CONFIG_NAME=y"),
        ("lab-i386-up+tsc=unstable", "the exact clock depends on it"),
        ("lab-i386-up+randomize-kstack-offset=on", "the counts"),
        ("lab-i386-up+maxcpus=2", "(smp)"),
        ("lab-i386-up+CONFIG_KPROBES=n", "the lab needs CONFIG_KPROBES (probes are kprobes"),
        ("lab-i386-up+CONFIG_64BIT=y", "cannot change the architecture"),
        ("lab-i386-up+/nowhere/x.config", "No such file or directory"),
    ],
)
def test_what_cannot_be_measured_is_refused(word: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        kernel(word)
    assert message in f"{caught.value}"


def test_a_line_that_is_no_option_is_named_by_its_place(tmp_path: Path) -> None:
    file = tmp_path / "x.config"
    file.write_text("CONFIG_A=y\nCONFIG_B\n")
    with pytest.raises(ConfigError) as caught:
        kernel(f"lab-i386-up+{file}")
    assert caught.value.where == f"{file}:2"


def test_what_the_lab_passes_is_reserved_but_for_what_an_experiment_may_change() -> None:
    facts = machine_facts()
    every = [*facts.kernel_parameters, *facts.quick.kernel_parameters, *facts.instructions.kernel_parameters]
    allowed = {"nokaslr", "norandmaps", "mitigations=off"}
    for word in every:
        if word not in allowed:
            with pytest.raises(ConfigError):
                checked_parameter(word)
    assert [checked_parameter(word) for word in sorted(allowed)] == sorted(allowed)


def test_no_catalogue_name_is_taken_for_a_variant() -> None:
    assert all(split(name) == (name, ()) for name in kernels())
    assert all(name == name.replace("-", "_") for names in reserved_parameters().values() for name in names)
