# SPDX-License-Identifier: GPL-2.0-only
"""Do the lab's own modules build without a warning on every kernel?"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from experiment_boot import boot_of, boot_of_calls

from orchestrator.artifacts import kbuild
from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import Cache
from orchestrator.artifacts.module_source import ModuleSource, render
from orchestrator.artifacts.modules import Module, build_modules
from orchestrator.artifacts.ready_kernels import Kernel, ready_kernel
from orchestrator.benchmarks.calls import preparation
from orchestrator.catalog.kernels import kernels
from orchestrator.catalog.probes import probes, recorder_kinds
from orchestrator.paths import data_dir
from orchestrator.probes import recorder

CAPABILITIES = data_dir("configs") / "djprobe-2005-list15.yaml"
EVERY_DAY = "lab-i386-up"
"""Other tests need most of its modules, too."""
ALONE = ["attach", "marker_sizes", "markers", "kpcache_driver"]
"""Templates that take no values."""


def sources(kernel: Kernel) -> Iterator[ModuleSource]:
    """Each module that the lab would build for this kernel."""
    cpu = "xeon-e5410" if kernel.spec.needs_long_mode else "pentium4"
    kinds = boot_of_calls(
        kernels=[kernel.spec.name],
        machines=[{"cpu": cpu}],
        probes=[name for name, kind in probes().items() if kind.site != "program"],
        benchmark={"name": "gtodbench"},
    )
    capabilities = boot_of(CAPABILITIES, f"kernels=[{kernel.spec.name}]", f"machines.0.cpu={cpu}")
    for cell in [*kinds.cells, *capabilities.cells]:
        if preparation.unsupported_reason(kernel, cell) is None:
            setup = preparation.set_up(kernel, cell)
            if setup.template is not None:
                yield render(setup.template, setup.values)
    for template in ALONE:
        yield render(template, {})
    if kernel.config.get("CONFIG_LIVEPATCH") == "y":
        yield render("livepatch", {})
    for kind in recorder_kinds().values():
        if recorder.unsupported_reason(kernel, kind) is None:
            yield render(recorder.TEMPLATE, recorder.recorder_values(kind.module, kernel.spec.arch))


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name,
            marks=[
                pytest.mark.kernels(name),
                *([] if name == EVERY_DAY else [pytest.mark.nightly("two dozen modules for each kernel")]),
            ],
        )
        for name in kernels()
    ],
)
def test_the_labs_modules_build_without_a_warning(name: str, workshop: BuildContext) -> None:
    kernel = ready_kernel(workshop, kernels()[name])
    module_sources = list({str(source.files): source for source in sources(kernel)}.values())
    assert len(module_sources) > 20
    for module in build_modules(workshop, kernel, module_sources):
        assert isinstance(module, Module), module
        assert module.warnings == (), module.name


@pytest.mark.kernels(EVERY_DAY)
@pytest.mark.nightly("three modules built from nothing")
def test_a_module_of_shared_objects_is_the_same(workshop: BuildContext, tmp_path: Path) -> None:
    """All its bytes but the build ID: debug information names the folder of assembled files, and is stripped later."""
    kernel = ready_kernel(workshop, kernels()[EVERY_DAY])

    def content(cache: str, *templates: str) -> bytes:
        context = BuildContext(Cache(tmp_path / cache))
        modules = [build_modules(context, kernel, [render(name, {})])[0] for name in templates]
        assert isinstance(modules[-1], Module), modules[-1]
        plain = tmp_path / f"{cache}.ko"
        subprocess.run(["objcopy", "--remove-section=.note.gnu.build-id", modules[-1].file, plain], check=True)
        return plain.read_bytes()

    assert content("alone", "kretprobe") == content("shared", "kprobe", "kretprobe")
    assert list((tmp_path / "shared" / "module-objects").iterdir())


def test_a_module_is_the_same_whoever_answers_for_the_compiler(
    workshop: BuildContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the compiler has taken before is not asked again; without those answers the same bytes are built."""
    kernel = ready_kernel(workshop, kernels()["debian-amd64"])
    text = (Path(__file__).with_name("modules") / "idle.c").read_text()

    def content(cache: str) -> bytes:
        source = ModuleSource("idle", {"idle.c": text, "Kbuild": "obj-m := idle.o\n"})
        (module,) = build_modules(BuildContext(Cache(tmp_path / cache)), kernel, [source])
        assert isinstance(module, Module), module
        return module.file.read_bytes()

    answered = content("answered")
    (answers,) = (tmp_path / "answered").glob("compiler-answers/*/succeeded")
    assert len(answers.read_text().splitlines()) > 20
    monkeypatch.setattr(kbuild, "_answers", lambda *_: None)
    assert content("asked") == answered
    assert not list((tmp_path / "asked").glob("compiler-answers"))
