# SPDX-License-Identifier: GPL-2.0-only
"""Does a run go on with the kernel that it was begun with, and with no other?"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest
from host_toolchain import a_kernel

from orchestrator.artifacts.modules import Module
from orchestrator.artifacts.sources import line_source, user_source
from orchestrator.catalog.cpus import cpu
from orchestrator.errors import UsageError
from orchestrator.guest.machine import Machine
from orchestrator.run.benchmark_kind import BootArtifacts, Ready
from orchestrator.run.boot_events import GuestBooted
from orchestrator.run.provenance import Provenance

BOOTED = GuestBooted("guest1", ("qemu",))
PACKAGE, VERSION = "linux-image-6.1.0-50-686:i386", "6.1.176-1"


@pytest.fixture
def artifacts(tmp_path: Path) -> BootArtifacts:
    image = tmp_path / "image"
    image.write_bytes(b"a kernel")
    packages, origin = {PACKAGE: VERSION}, {PACKAGE: f"{VERSION} (bookworm-security)"}
    release = "6.1.0-50-686"
    kernel = a_kernel("debian-686", folder=tmp_path, release=release, image=image, packages=packages, origin=origin)
    return BootArtifacts(kernel, Machine(cpu("pentium4"), kernel=image, initramfs=image), {})


def begin(folder: Path, artifacts: BootArtifacts) -> dict[str, object]:
    folder.mkdir()
    Provenance(folder).boot(BOOTED, "boot1", artifacts)
    (boot,) = json.loads((folder / "provenance.json").read_text())["boots"]
    assert isinstance(boot["kernel"], dict)
    return boot["kernel"]


def test_suites_are_recorded_and_do_not_count(tmp_path: Path, artifacts: BootArtifacts) -> None:
    recorded = begin(tmp_path / "run", artifacts)
    assert recorded["packages"] == {PACKAGE: VERSION}
    assert recorded["origin"] == {PACKAGE: f"{VERSION} (bookworm-security)"}
    moved = replace(artifacts.kernel, origin={PACKAGE: f"{VERSION} (bookworm)"})
    Provenance(tmp_path / "run").boot(BOOTED, "boot2", replace(artifacts, kernel=moved))


def test_a_run_of_an_earlier_version_goes_on(tmp_path: Path, artifacts: BootArtifacts) -> None:
    begin(tmp_path / "run", artifacts)
    file = tmp_path / "run/provenance.json"
    content = json.loads(file.read_text())
    del content["boots"][0]["kernel"]["origin"]
    file.write_text(json.dumps(content))
    Provenance(tmp_path / "run").boot(BOOTED, "boot2", artifacts)


def test_another_version_of_the_kernel_is_refused(tmp_path: Path, artifacts: BootArtifacts) -> None:
    begin(tmp_path / "run", artifacts)
    newer = replace(artifacts.kernel, packages={PACKAGE: "6.1.192-2"})
    with pytest.raises(UsageError, match="started with something else") as caught:
        Provenance(tmp_path / "run").boot(BOOTED, "boot2", replace(artifacts, kernel=newer))
    assert caught.value.detail == (f"{PACKAGE}: was {VERSION}, is 6.1.192-2",)


def test_an_image_that_was_derived_is_recorded_with_the_packages_own(tmp_path: Path, artifacts: BootArtifacts) -> None:
    packaged = tmp_path / "vmlinuz"
    packaged.write_bytes(b"a compressed kernel")
    derived = replace(artifacts, kernel=replace(artifacts.kernel, packaged=packaged))
    recorded = begin(tmp_path / "run", derived)
    assert recorded["image_sha256"] == hashlib.sha256(b"a kernel").hexdigest()
    assert recorded["packaged_image_sha256"] == hashlib.sha256(b"a compressed kernel").hexdigest()
    assert "packaged_image_sha256" not in begin(tmp_path / "other", artifacts)


def test_the_kernel_s_own_modules_stay_the_same(tmp_path: Path, artifacts: BootArtifacts) -> None:
    vfat = tmp_path / "vfat.ko"
    vfat.write_bytes(b"vfat")
    with_vfat = replace(artifacts, kernel_modules={"vfat": vfat})
    begin(tmp_path / "run", with_vfat)
    (boot,) = json.loads((tmp_path / "run/provenance.json").read_text())["boots"]
    digest = hashlib.sha256(b"vfat").hexdigest()
    assert boot["kernel_modules"] == {"name": "vfat", "file_sha256": {"vfat": digest}}
    # Another table may have other modules, or none.
    Provenance(tmp_path / "run").boot(BOOTED, "boot2", artifacts)
    Provenance(tmp_path / "run").boot(BOOTED, "boot3", replace(artifacts, kernel_modules={"fat": vfat, "vfat": vfat}))
    vfat.write_bytes(b"built anew")
    with pytest.raises(UsageError, match="started with something else") as caught:
        Provenance(tmp_path / "run").boot(BOOTED, "boot4", with_vfat)
    assert caught.value.detail[0].startswith(f"vfat: was {digest}, is ")


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "shared.h").write_text("#define N 1")
    (folder / "reading.c").write_text("void workload(void) {}")
    (folder / "prog").write_bytes(b"\0binary")
    return folder / "reading.c"


def with_sources(artifacts: BootArtifacts, mine: Path, cell: str = "a") -> BootArtifacts:
    """Artifacts of a cell with a workload and its header, a program and a line."""
    sources = {
        "workload": user_source(mine, [mine.with_name("shared.h"), Path("/usr/include/linux/fcntl.h")]),
        "library x.so": user_source(mine.with_name("prog")),
        "probe": line_source("bpftrace: kprobe:vfs_read { @ = count(); }"),
    }
    return replace(artifacts, cells={cell: Ready(None, sources=sources)})


def test_users_files_are_recorded_and_kept_as_text(tmp_path: Path, artifacts: BootArtifacts, mine: Path) -> None:
    begin(tmp_path / "run", with_sources(artifacts, mine))
    (boot,) = json.loads((tmp_path / "run/provenance.json").read_text())["boots"]
    used = boot["inputs"]["a"]
    assert {role: one["name"] for role, one in used.items()} == {
        "workload": "reading.c",
        "library x.so": "prog",
        "probe": "bpftrace: kprobe:vfs_read { @ = count(); }",
    }
    digests = boot["sources"][used["workload"]["key"]]
    assert list(digests) == ["reading.c", "shared.h", "/usr/include/linux/fcntl.h"]
    assert digests["shared.h"] == hashlib.sha256(b"#define N 1").hexdigest()
    folder = tmp_path / "run/sources"
    kept = {str(file.relative_to(folder)): file.read_text() for file in folder.rglob("*") if file.is_file()}
    assert sorted(name.partition("/")[2] for name in kept) == ["line", "reading.c", "shared.h"]
    assert "bpftrace: kprobe:vfs_read { @ = count(); }" in kept.values()


@pytest.mark.parametrize("name", ["x" * 300, "kprobe:a { @ = count(); } " * 40, "x.c" * 83, "a/b/", "é" * 200])
def test_the_folder_of_a_source_has_a_name_that_file_systems_take(
    tmp_path: Path, artifacts: BootArtifacts, name: str
) -> None:
    source = replace(line_source("kprobe:vfs_read { @ = 8 / 2; }"), name=name)
    begin(tmp_path / "run", replace(artifacts, cells={"a": Ready(None, sources={"probe": source})}))
    (folder,) = (tmp_path / "run/sources").iterdir()
    assert folder.name.endswith(f"-{source.key[:8]}")
    assert folder.name.startswith(name[0] if name.isascii() else "module")
    assert (folder / "line").read_text() == source.texts["line"]


@pytest.mark.parametrize("name", ["reading.c", "shared.h", "prog"])
def test_a_run_does_not_go_on_with_another_source(
    tmp_path: Path, artifacts: BootArtifacts, mine: Path, name: str
) -> None:
    begin(tmp_path / "run", with_sources(artifacts, mine))
    Provenance(tmp_path / "run").check_sources([with_sources(artifacts, mine, "b")])
    mine.with_name(name).write_text("changed")
    with pytest.raises(UsageError, match="changed since the run was started") as caught:
        # Another cell has it, too: a table of two texts.
        Provenance(tmp_path / "run").check_sources([with_sources(artifacts, mine, "b")])
    assert caught.value.where == str(mine.with_name(name))


def test_a_changed_file_of_the_lab_s_is_not_said_to_be_in_the_user_s_folder(
    tmp_path: Path, artifacts: BootArtifacts, mine: Path
) -> None:
    def ready(digest: str) -> BootArtifacts:
        source = replace(user_source(mine), digests={"lab:guest/results.h": digest})
        return replace(artifacts, cells={"a": Ready(None, sources={"workload": source})})

    begin(tmp_path / "run", ready("before"))
    with pytest.raises(UsageError, match="changed since the run was started") as caught:
        Provenance(tmp_path / "run").check_sources([ready("after")])
    assert caught.value.where == "lab:guest/results.h"


def test_a_run_does_not_go_on_with_another_source_of_a_module(tmp_path: Path, artifacts: BootArtifacts) -> None:
    sources = tmp_path / "sources"
    sources.mkdir()
    (sources / "ring.c").write_text("a ring")

    def ready() -> BootArtifacts:
        key = hashlib.sha256((sources / "ring.c").read_bytes()).hexdigest()
        return replace(
            artifacts, cells={"a": Ready(None, (Module("lab_kprobe", artifacts.kernel.image, key, sources),))}
        )

    begin(tmp_path / "run", ready())
    (sources / "ring.c").write_text("another ring")
    with pytest.raises(UsageError, match="changed since the run was started") as caught:
        Provenance(tmp_path / "run").check_sources([ready()])
    assert caught.value.where == "a: ring.c"


def test_a_run_of_a_version_that_recorded_no_sources_goes_on(
    tmp_path: Path, artifacts: BootArtifacts, mine: Path
) -> None:
    begin(tmp_path / "run", with_sources(artifacts, mine))
    file = tmp_path / "run/provenance.json"
    content = json.loads(file.read_text())
    for key in ("inputs", "sources"):
        del content["boots"][0][key]
    file.write_text(json.dumps(content))
    mine.write_text("changed")
    Provenance(tmp_path / "run").check_sources([with_sources(artifacts, mine)])


def test_a_modules_sources_are_recorded_once_for_its_cells(tmp_path: Path, artifacts: BootArtifacts) -> None:
    sources = tmp_path / "sources"
    sources.mkdir()
    (sources / "ring.c").write_bytes(b"a ring")
    (sources / "warnings.txt").write_bytes(b"of the compiler's, not a source")
    built = Module("lab_kprobe", artifacts.kernel.image, "key1", sources)
    given = Module("own_mine", artifacts.kernel.image, "key2", None)
    cells = {"a": Ready(None, (built,)), "b": Ready(None, (built, given))}
    begin(tmp_path / "run", replace(artifacts, cells=cells))
    (boot,) = json.loads((tmp_path / "run/provenance.json").read_text())["boots"]
    assert {cell: module["name"] for cell, module in boot["modules"].items()} == {
        "a": "lab_kprobe",
        "b: lab_kprobe": "lab_kprobe",
        "b: own_mine": "own_mine",
    }
    assert boot["sources"] == {
        "key1": {"ring.c": hashlib.sha256(b"a ring").hexdigest()},
        "key2": {"image": hashlib.sha256(b"a kernel").hexdigest()},
    }


def test_a_restored_guest_is_recorded_with_what_it_was_restored_from(tmp_path: Path, artifacts: BootArtifacts) -> None:
    begin(tmp_path / "run", artifacts)
    Provenance(tmp_path / "run").boot(replace(BOOTED, restored_from="a-key"), "boot1", artifacts)
    boots = json.loads((tmp_path / "run/provenance.json").read_text())["boots"]
    assert [boot.get("restored_from") for boot in boots] == [None, "a-key"]


def test_a_module_of_the_same_sources_is_the_same_file(tmp_path: Path, artifacts: BootArtifacts) -> None:
    """Of another cell: headers of a kernel's tree may have changed meanwhile, and its image not."""
    sources = tmp_path / "sources"
    sources.mkdir()
    (sources / "own_main.c").write_text("int x;")
    for name in ("then", "now"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "own.ko").write_bytes(name.encode())

    def loaded(cell: str, folder: str) -> BootArtifacts:
        module = Module("own", tmp_path / folder / "own.ko", folder, sources)
        return replace(artifacts, cells={cell: Ready(None, (module,))})

    begin(tmp_path / "run", loaded("a", "then"))
    provenance = Provenance(tmp_path / "run")
    provenance.check_sources([loaded("b", "then")])
    with pytest.raises(UsageError, match="module own is built from the same sources to another file") as caught:
        provenance.check_sources(iter([loaded("b", "now")]))
    assert "headers of debian-686 or the compiler have changed" in str(caught.value.hint)
    other_kernel = replace(artifacts.kernel, spec=a_kernel("debian-amd64").spec)
    provenance.check_sources([replace(loaded("b", "now"), kernel=other_kernel)])
    (sources / "own_main.c").write_text("int y;")  # rendered for another cell
    provenance.check_sources([loaded("b", "now")])
