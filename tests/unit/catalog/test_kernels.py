# SPDX-License-Identifier: GPL-2.0-only
"""Does a reason name kernels that have what one lacks, of its architecture where there are such, and no others?"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from user_trees import IMAGE, build_tree

from orchestrator.arch import Arch
from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import Cache
from orchestrator.artifacts.kernel_config import merged
from orchestrator.artifacts.ready_kernels import ready_kernel
from orchestrator.benchmarks.registry import kinds
from orchestrator.catalog.cpus import cpu
from orchestrator.catalog.kernels import kernel, kernels, kernels_by_option, without_option
from orchestrator.errors import ConfigError, HostError
from orchestrator.experiment.file import load_experiment
from orchestrator.experiment.plan import plan, select

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


# Is a user's build tree described as it is, and one that cannot be a guest's kernel refused in a sentence?


@pytest.mark.parametrize("image", [".", "arch/x86/boot/bzImage"])
def test_a_tree_is_named_by_its_folder_or_its_image(tmp_path: Path, image: str) -> None:
    tree = build_tree(tmp_path / "my-linux")
    spec = kernel(str(tree / image))
    assert spec == kernel(str(tree))
    assert spec.name.startswith("own-my-linux-")
    assert (spec.arch, spec.tree, spec.image) == ("i386", tree, tree / "arch/x86/boot/bzImage")
    assert (spec.needs_pae, spec.entry_offset, spec.packages, spec.source) == (False, 0, None, None)


def test_a_vmlinux_that_qemu_cannot_start_stands_for_its_compressed_form(tmp_path: Path) -> None:
    tree = build_tree(tmp_path / "tree")
    vmlinux, compressed = tree / "vmlinux", tree / "arch/x86/boot/bzImage"
    vmlinux.write_bytes(b"\x7fELF")
    os.utime(vmlinux, (1, 1))
    assert kernel(str(vmlinux)) == kernel(str(tree))
    os.utime(compressed, (0, 0))
    with pytest.raises(ConfigError, match="only its bzImage can boot") as refused:
        kernel(str(vmlinux))
    assert "make bzImage" in refused.value.hint
    with (tree / ".config").open("a") as config:
        config.write("CONFIG_PVH=y\n")
    assert kernel(str(vmlinux)).image == vmlinux


def test_a_tree_can_be_given_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = build_tree(tmp_path / "linux")
    monkeypatch.chdir(tmp_path)
    spec = kernel("mine=./linux")
    assert (spec.name, spec.tree) == ("mine", tree)
    assert spec == kernel(f"mine={tree}/arch/x86/boot/bzImage")
    # A folder may have such a name itself.
    assert kernel(str(build_tree(tmp_path / "a=b" / "linux").relative_to(tmp_path))).name.startswith("own-linux-")
    with pytest.raises(ConfigError, match=r"found 'mine=\./linus'; this kernel image or build tree does not exist"):
        kernel("mine=./linus")
    with pytest.raises(ConfigError, match="debian-686 is a kernel of the lab") as refused:
        kernel("debian-686=./linux")
    assert refused.value.hint == "give yours another name"


@pytest.mark.parametrize(
    ("kernels_of_file", "names"),
    [
        ("{mine: ./linux, other: ./linux/arch/x86/boot/bzImage}", ["mine", "other"]),
        ("[lab-i386-up, {mine: ./linux}]", ["lab-i386-up", "mine"]),
        ("[mine=./linux]", ["mine"]),
    ],
)
def test_an_experiment_names_its_trees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kernels_of_file: str, names: list[str]
) -> None:
    (tmp_path / "files").mkdir()
    tree, file = build_tree(tmp_path / "files" / "linux"), tmp_path / "files" / "own.yaml"
    file.write_text(
        f"name: own\nkernels: {kernels_of_file}\nmachines: [{{cpu: pentium4}}]\nprobes: [none, kprobe]\n"
        "benchmark: {name: gtodbench}\n"
    )
    monkeypatch.chdir(tmp_path)
    experiment = load_experiment(file, kinds())
    (table,) = experiment.tables
    assert [kernel(name).name for name in table.table.kernels] == names
    assert {kernel(name).tree for name in table.table.kernels} <= {None, tree}
    assert {cell.id.split("/")[1] for cell in plan(experiment).cells} == set(names)
    assert {cell.kernel for cell in select(plan(experiment), [f"kernel={names[-1]}"]).cells} == {
        table.table.kernels[-1]
    }


def test_a_name_in_an_experiment_is_for_a_tree(tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    rest = "machines: [{cpu: pentium4}]\nprobes: [none, kprobe]\nbenchmark: {name: gtodbench}\n"
    for wrong, sentence in (
        ("{mine: lab-i386-up}", "expected a list of 1 to 1000 entries"),
        ("[{mine: lab-i386-up}]", "expected a kernel's name"),
        ("{mine: ./linus}", "found 'mine="),
    ):
        file.write_text(f"name: own\nkernels: {wrong}\n{rest}")
        with pytest.raises(ConfigError, match=r"own\.yaml:2") as refused:
            load_experiment(file, kinds())
        assert sentence in str(refused.value)


def test_two_trees_of_one_name_are_two_kernels(tmp_path: Path) -> None:
    path, other_path = (build_tree(tmp_path / parent / "linux") for parent in "ab")
    assert kernel(str(path)).name != kernel(str(other_path)).name


@pytest.mark.parametrize(
    ("options", "arch", "pae", "offset"),
    [
        ((), "i386", False, 0),
        (("X86_PAE", "DYNAMIC_FTRACE"), "i386", True, 5),
        (("X86_64",), "x86_64", True, 0),
        (("X86_64", "DYNAMIC_FTRACE"), "x86_64", True, 5),
        (("X86_64", "DYNAMIC_FTRACE", "X86_KERNEL_IBT"), "x86_64", True, 9),
    ],
)
def test_what_it_is_follows_from_its_configuration(
    tmp_path: Path, options: tuple[str, ...], arch: str, pae: bool, offset: int
) -> None:
    spec = kernel(str(build_tree(tmp_path / "tree", *options)))
    assert (spec.arch, spec.needs_pae, spec.entry_offset) == (arch, pae, offset)


@pytest.mark.parametrize(
    ("value", "too_old", "old_enough"),
    [("6", "pentium", "pentium2"), ("5", "486", "pentium"), ("64", None, "486"), ("what?", None, "486")],
)
def test_kernel_configuration_says_which_cpu_is_too_old(
    tmp_path: Path, value: str, too_old: str | None, old_enough: str
) -> None:
    tree = build_tree(tmp_path / "tree")
    with (tree / ".config").open("a") as config:
        config.write(f"CONFIG_X86_MINIMUM_CPU_FAMILY={value}\n")
    spec = kernel(str(tree))
    assert spec.unsupported_reason(cpu(old_enough)) is None
    if too_old is not None:
        assert f"needs an i{value}86 CPU and CPU '{too_old}'" in str(spec.unsupported_reason(cpu(too_old)))


@pytest.mark.parametrize(
    ("without", "message"),
    [
        ("MODULES", "it was built without CONFIG_MODULES (probes are modules)"),
        ("KPROBES", "it was built without CONFIG_KPROBES"),
        ("DEBUG_FS", "it was built without CONFIG_DEBUG_FS"),
        ("X86", "it is not a kernel for x86"),
    ],
)
def test_a_kernel_that_cannot_be_probed_is_refused(tmp_path: Path, without: str, message: str) -> None:
    tree = build_tree(tmp_path / "tree", without=without)
    with pytest.raises(ConfigError) as refused:
        kernel(str(tree))
    assert message in refused.value.what


@pytest.mark.parametrize("missing", [".config", "include/config/kernel.release", "arch/x86/boot/bzImage"])
def test_an_incomplete_tree_is_refused_with_what_is_missing(tmp_path: Path, missing: str) -> None:
    tree = build_tree(tmp_path / "tree")
    (tree / missing).unlink()
    with pytest.raises(ConfigError, match="is incomplete") as refused:
        kernel(str(tree))
    assert missing in refused.value.what
    assert "make bzImage modules" in refused.value.hint


def test_a_path_that_make_cannot_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="modules cannot be built for it"):
        kernel(str(build_tree(tmp_path / "my linux")))


def test_unknown_names_and_paths_have_different_errors(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="this kernel image or build tree does not exist"):
        kernel(str(tmp_path / "nowhere"))
    with pytest.raises(ConfigError, match="this user does not exist"):
        kernel("~no-such-user/linux")
    with pytest.raises(ConfigError, match="it cannot be read: File name too long"):
        kernel(f"./{'x' * 300}")
    with pytest.raises(ConfigError, match="did you mean 'lab-i386-up-hook'"):
        kernel("lab-i386-up-hok")
    assert all("/" not in name for name in kernels())


def test_a_kernel_without_a_console_is_refused_with_the_option(tmp_path: Path) -> None:
    context = BuildContext(Cache(tmp_path / "cache"), offline=True)
    good = ready_kernel(context, kernel(str(build_tree(tmp_path / "good"))))
    assert (good.release, good.drivers_built_in, good.smp) == ("6.1.0-mine", True, False)
    (tmp_path / "good/arch/x86/boot/bzImage").write_bytes(IMAGE + b"another")
    assert ready_kernel(context, good.spec).key != good.key
    with pytest.raises(HostError, match="cannot communicate with the lab: CONFIG_VIRTIO_CONSOLE must be y") as refused:
        ready_kernel(context, kernel(str(build_tree(tmp_path / "bad", without="VIRTIO_CONSOLE"))))
    assert "scripts/config" in refused.value.hint
