# SPDX-License-Identifier: GPL-2.0-only
"""Does the schema accept what it should, name everything wrong at once, and write itself out whole?"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st
from loaded_tables import only_table
from record_builders import cell

from orchestrator.benchmarks.calls.call_cells import call_cells
from orchestrator.benchmarks.calls.calls_table import CallsTable
from orchestrator.benchmarks.calls.tables.layout import heading
from orchestrator.benchmarks.registry import kinds
from orchestrator.catalog.cpus import cpus
from orchestrator.catalog.data import choices_sentence
from orchestrator.catalog.kernels import kernels
from orchestrator.catalog.probes import probe_kind, probes
from orchestrator.errors import ConfigError, HostError
from orchestrator.experiment.experiment import Experiment, Heading
from orchestrator.experiment.file import load_experiment
from orchestrator.experiment.plan import plan
from orchestrator.paths import data_dir

MINIMAL = """\
name: small
kernels: [debian-686]
machines: [{cpu: pentium4}]
probes:
  - kprobe
benchmark: {name: gtodbench}
"""


Loader = Callable[..., Experiment]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Loader:
    monkeypatch.chdir(tmp_path)

    def load_text(text: str, *overrides: str, qemu: Callable[[], Collection[str]] | None = None) -> Experiment:
        Path("x.yaml").write_text(text, encoding="utf-8")
        return load_experiment(Path("x.yaml"), kinds(), overrides, qemu)

    return load_text


def test_paths_of_an_experiment_behind_a_link_are_relative_to_the_link_s_folder(tmp_path: Path) -> None:
    """As a compiler finds a linked source's headers: one experiment serves the modules of many folders."""
    for name in ("shared", "mine"):
        (tmp_path / name).mkdir()
    (tmp_path / "shared/x.yaml").write_text(MINIMAL.replace("- kprobe", "- ./probe.c"), encoding="utf-8")
    (tmp_path / "mine/x.yaml").symlink_to("../shared/x.yaml")
    (tmp_path / "mine/real.c").write_text("/* a module */")
    (tmp_path / "mine/probe.c").symlink_to("real.c")
    table = only_table(load_experiment(tmp_path / "mine/x.yaml", kinds()), CallsTable)
    assert table.probes == (str(tmp_path / "mine/probe.c"),)
    with pytest.raises(ConfigError, match=r"shared/probe\.c'; this file does not exist"):
        load_experiment(tmp_path / "shared/x.yaml", kinds())


def test_a_tool_that_is_the_user_s_file_is_in_the_experiment_s_folder_and_moved_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("mine", "then"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "my load.sh").write_text("#!/bin/sh\n")
        (tmp_path / folder / "reads.bt").write_text("kprobe:vfs_read { @[str($1)] = $2; }\n")
    probes = ["tool: './my load.sh' -p 1", "reads.bt 'a b' 7", "./reads.bt x=1", "tool: opensnoop ./mine -x"]
    text = MINIMAL.replace("\n  - kprobe", f" {json.dumps(probes)}")
    (tmp_path / "mine/x.yaml").write_text(
        f"image: debian-amd64-tools-13\n{text}".replace("debian-686", "debian-amd64").replace("pentium4", "xeon-e5410")
    )

    def moved(path: str) -> str:
        return path.replace(f"{tmp_path}/mine", f"{tmp_path}/then")

    def rows(folder: str) -> tuple[str, ...]:
        place = tmp_path / folder
        return (
            f"tool: '{place}/my load.sh' -p 1",
            f"{place}/reads.bt 'a b' 7",
            f"{place}/reads.bt x=1",
            "tool: opensnoop ./mine -x",
        )

    file = tmp_path / "mine/x.yaml"
    assert only_table(load_experiment(file, kinds()), CallsTable).probes == rows("mine")
    assert only_table(load_experiment(file, kinds(), moved=moved), CallsTable).probes == rows("then")
    left = load_experiment(file, kinds(), left_out=lambda path: path.endswith("my load.sh"))
    assert only_table(left, CallsTable).probes == rows("mine")[1:]
    with pytest.raises(ConfigError, match=r"--set probes=.*quotes are as in a shell"):
        load_experiment(file, kinds(), ['probes=["tool: ./a \'b"]'])


def test_the_quickstart_is_the_promised_experiment() -> None:
    experiment = load_experiment(data_dir("configs") / "quickstart.yaml", kinds())
    table = only_table(experiment, CallsTable)
    assert experiment.name == "quickstart"
    assert [machine.cpu for machine in table.machines] == ["pentium4"]
    assert table.kernels == ("debian-686",)
    assert table.probes == ("none", "kprobe", "jprobe", "djprobe")
    assert table.handlers == ("noop",)
    assert (table.benchmark.calls, table.benchmark.repeats) == (5000, 4)
    assert table.reference == "djprobe-2005/list5"


def test_defaults_are_written_out(load: Loader) -> None:
    assert yaml.safe_load(load(MINIMAL).resolved_yaml()) == {
        "name": "small",
        "description": None,
        "charts": False,
        "reference": None,
        "clock": "instructions",
        "image": None,
        "channel": "framed",
        "kernels": ["debian-686"],
        "machines": [{"cpu": "pentium4", "smp": 1, "memory": "256M"}],
        "probes": ["kprobe"],
        "kernel_for": {},
        "handlers": ["noop"],
        "points": None,
        "profile": None,
        "benchmark": {
            "name": "gtodbench",
            "calls": 5000,
            "repeats": 4,
            "entry": "auto",
            "call": None,
            "arguments": [],
            "expect": None,
            "file": None,
            "run": None,
            "libraries": None,
            "in_turns": False,
            "hits": 1,
        },
        "kernel_modules": None,
        "time_limit": 120,
    }


def test_equal_experiments_have_equal_digests(load: Loader) -> None:
    assert load(MINIMAL).digest() == load(MINIMAL + "time_limit: 120\n").digest()
    assert load(MINIMAL).digest() != load(MINIMAL + "time_limit: 121\n").digest()


def test_memory_has_one_spelling(load: Loader) -> None:
    assert load(MINIMAL, "machines.0.memory=1G") == load(MINIMAL, "machines.0.memory=1024M")
    assert only_table(load(MINIMAL, "machines.0.memory=4G"), CallsTable).machines[0].memory_mib == 4096


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("name=Foo", "name: found 'Foo'; expected at most 64 small letters, digits and hyphens"),
        ("name=-rf", "name: found '-rf'; expected at most 64"),
        ("name=2005", "name: found 2005; expected at most 64"),
        ("description=[]", "description: found a list; expected text of at most 1000 characters"),
        ('description="\\e[31m"', "description: found '\\x1b[31m'; expected text without control characters"),
        ("reference=djprobe-2005/list9", "reference: found 'djprobe-2005/list9'; allowed: djprobe-2005/list4, "),
        ("clock=sundial", "clock: found 'sundial'; allowed: instructions, wall"),
        ("clock=modelled", "clock: found 'modelled'; a report computes modelled time; set clock: instructions"),
        (
            "kernels=[debian-868]",
            "kernels.0: found 'debian-868'; allowed: debian-686, debian-686-pae, debian-amd64, debian-amd64@6.12, ",
        ),
        ("kernels=[/no/where]", "kernels.0: found '/no/where'; this kernel image or build tree does not exist"),
        ("kernels=[~nobody-here/x]", "kernels.0: found '"),
        ("kernels=[7]", "kernels.0: found 7; expected a kernel's name"),
        ("kernel_for=[]", "kernel_for: found a list; expected a mapping of probe to kernel"),
        ("kernel_for={kprob: debian-686}", "kernel_for.kprob"),
        ("kernel_for={jprobe: debian-686}", "kernel_for.jprobe: it is not among the probes"),
        ("kernel_for={kprobe: debian-amd64}", "kernel_for.kprobe: kernel 'debian-amd64' is 64-bit and CPU"),
        ("charts=perhaps", "charts: found 'perhaps'; expected true or false"),
        ("kernels=debian-686", "kernels: found 'debian-686'; expected a list of 1 to 1000 entries"),
        ("kernels=[]", "kernels: found 0 entries; expected a list of 1 to 1000 entries"),
        (f"kernels=[{'a,' * 1001}]", "kernels: found 1001 entries; expected a list of 1 to 1000 entries"),
        ("kernels=[debian-686, debian-686]", "kernels.1: a duplicate of an entry above"),
        ("machines=[{cpu: athlon, memory: 1G}, {cpu: athlon, memory: 1024M}]", "machines.1: a duplicate of an entry"),
        (
            "machines={cpu: athlon, memory: 1G}",
            "machines: found a mapping; expected a list of 1 to 1000 entries, such as [{cpu: athlon, memory: 1G}]",
        ),
        ("machines.0=pentium4", "machines.0: found 'pentium4'; expected a mapping; keys: cpu, smp, memory"),
        ("machines.0={}", "machines.0.cpu: missing; this key is required"),
        ("machines.0.cpus=1", "machines.0.cpus: unknown key; allowed: cpu, smp, memory; did you mean 'cpu'?"),
        (
            "machines.0.cpu=486",
            "machines.0.cpu: found 486; expected a CPU's name; put a name that is a number in quotes",
        ),
        ("machines.0.smp=0", "machines.0.smp: found 0; expected a whole number from 1 to 16"),
        ("machines.0.smp=true", "machines.0.smp: found true; expected a whole number"),
        ("machines.0.smp=2", "machines.0.smp: found 2; clock 'instructions' needs 1: QEMU counts"),
        ("kernel_modules=vfat", "kernel_modules: found 'vfat'; expected a list of 1 to 1000 entries"),
        ("kernel_modules=[-v]", "kernel_modules.0: found '-v'; expected the name of a module of the kernel's own"),
        ("kernel_modules=[a/b]", "kernel_modules.0: found 'a/b'; expected the name of a module of the kernel's own"),
        ("kernel_modules=[snd-pcm, snd_pcm]", "kernel_modules.1: a duplicate of an entry above"),
        ("machines.0.memory=63M", "machines.0.memory: found '63M'; expected a size from 64M to 4G"),
        ("machines.0.memory=5G", "machines.0.memory: found '5G'; expected a size"),
        ("machines.0.memory=2", "machines.0.memory: found 2; expected a size"),
        ("machines.0.memory=256M,x", "machines.0.memory: found '256M,x'; expected a size"),
        ("probes=[kprobes]", "probes.0: found 'kprobes'; allowed: none, kprobe, "),
        ("probes=[kretprobes]", "probes.0: found 'kretprobes'; allowed: none, kprobe, "),
        ("handlers=[records]", "handlers.0: found 'records'; allowed: noop, count, count-shared"),
        ("benchmark=gtodbench", "benchmark: found 'gtodbench'; expected a mapping; keys: name, calls, repeats"),
        ("benchmark.name=kpcash", "benchmark.name: found 'kpcash'; allowed: gtodbench"),
        ("benchmark.sizes=[1000]", "benchmark.sizes: benchmark 'gtodbench' does not have this key; leave it out"),
        ("probes=[marker.varargs]", "probes.0: found 'marker.varargs'; with benchmark 'gtodbench': it is a row of"),
        (
            "benchmark.cals=1",
            "benchmark.cals: unknown key; allowed: name, calls, repeats, entry, call, arguments, expect, file, "
            "run, libraries, in_turns, hits; did you mean 'calls'?",
        ),
        ("benchmark.calls=1.5", "benchmark.calls: found '1.5'; expected a whole number from 1 to 1000000"),
        ("benchmark.calls=", "benchmark.calls: found nothing; expected a whole number"),
        ("benchmark.repeats=0", "benchmark.repeats: found 0; expected a whole number from 1 to 100"),
        ("benchmark.repeats=101", "benchmark.repeats: found 101; expected a whole number from 1 to 100"),
        ("benchmark.entry=int81", "benchmark.entry: found 'int81'; allowed: auto, int80, sysenter, syscall; did you m"),
        ("time_limit=0", "time_limit: found 0; expected a whole number from 1 to 86400"),
        ("tables={}", "tables: found 0 tables; expected a mapping of 1 to 100 tables by name"),
    ],
)
def test_a_wrong_value_is_explained(load: Loader, override: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(MINIMAL, override)
    assert caught.value.what.startswith(message)
    assert caught.value.where.startswith("--set " + override[:30] if override.isprintable() else "--set ")


def test_an_error_in_the_file_names_its_line(load: Loader) -> None:
    with pytest.raises(ConfigError) as caught:
        load(MINIMAL.replace("- kprobe", "- kprob"))
    assert str(caught.value) == (
        f"x.yaml:5: probes.0: found 'kprob'; {choices_sentence('kprob', probes())}"
        "; all: orchestrator list probes; or a path: ./mine.c.j2, a module of your own, or ./mine.bpf.c"
    )


def test_all_problems_are_listed_at_once(load: Loader) -> None:
    with pytest.raises(ConfigError) as caught:
        load("nam: x\nkernels: [debian-687]\nmachines: [{cpu: pentum4}, {}]\nprobes: [none]\n", "time_limit=x")
    assert caught.value.what == "6 problems"
    assert caught.value.where == "x.yaml"
    assert [line.split(";")[0] for line in caught.value.detail] == [
        "x.yaml:1: benchmark: missing",
        "x.yaml:2: kernels.0: found 'debian-687'",
        "x.yaml:3: machines.0.cpu: found 'pentum4'",
        "x.yaml:3: machines.1.cpu: missing",
        "--set time_limit=x: time_limit: found 'x'",
        "x.yaml:1: nam: unknown key",
    ]


def test_a_long_list_of_problems_is_cut(load: Loader) -> None:
    with pytest.raises(ConfigError) as caught:
        load(MINIMAL, f"kernels=[{'x,' * 30}]")
    assert len(caught.value.detail) == 21
    assert caught.value.detail[-1] == "and 10 more"


def test_a_clash_is_blamed_on_the_override(load: Loader) -> None:
    clash = "kernel 'debian-amd64' is 64-bit and CPU 'pentium4' is 32-bit"
    with pytest.raises(ConfigError) as caught:
        load(MINIMAL.replace("debian-686", "debian-amd64"))
    assert str(caught.value) == f"x.yaml:3: machines.0.cpu: {clash}"
    with pytest.raises(ConfigError) as caught:
        load(MINIMAL, "kernels=[debian-amd64]")
    assert str(caught.value) == f"--set kernels=[debian-amd64]: kernels: {clash}"


@pytest.mark.parametrize("text", ["", "[]", "just text", "5"])
def test_a_file_that_is_no_mapping(load: Loader, text: str) -> None:
    with pytest.raises(
        ConfigError, match=r"^x.yaml:1: the file: found .*; expected keys with values, such as name: my-probes$"
    ):
        load(text)


def test_qemu_s_own_cpus_are_asked_for_only_when_needed(load: Loader) -> None:
    def qemu() -> Collection[str]:
        raise HostError("QEMU is missing")

    assert only_table(load(MINIMAL, qemu=qemu), CallsTable).machines[0].cpu == "pentium4"
    with pytest.raises(HostError):
        load(MINIMAL, "machines.0.cpu=Haswell", qemu=qemu)


def test_qemu_s_own_cpus(load: Loader) -> None:
    names = ["pentium", "Haswell-v1", "evil,vmx=on", "../x"]
    experiment = load(MINIMAL, "machines.0.cpu=pentium", qemu=lambda: names)
    assert only_table(experiment, CallsTable).machines[0].cpu == "pentium"
    with pytest.raises(ConfigError, match=r"found 'Haswel-v1'; allowed: pentium4, .*; did you mean 'Haswell-v1'\?"):
        load(MINIMAL, "machines.0.cpu=Haswel-v1", qemu=lambda: names)
    for name in ("evil,vmx=on", "../x"):
        with pytest.raises(ConfigError, match="allowed: pentium4"):
            load(MINIMAL, f"machines.0.cpu='{name}'", qemu=lambda: names)
    with pytest.raises(ConfigError, match="kernel 'debian-amd64' is 64-bit and CPU 'pentium' is 32-bit"):
        load(MINIMAL, "machines.0.cpu=pentium", "kernels=[debian-amd64]", qemu=lambda: names)


def subsets(names: Collection[str]) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(sorted(names)), min_size=1, unique=True)


experiments = st.fixed_dictionaries(
    {
        "name": st.from_regex(r"[a-z0-9][a-z0-9-]{0,63}", fullmatch=True),
        "description": st.none() | st.text(st.characters(exclude_categories=["C", "Z"], include_characters=" \n")),
        "reference": st.none() | st.sampled_from([f"djprobe-2005/list{number}" for number in (4, 5, 6, 7)]),
        "kernels": subsets(kernels()),
        "machines": st.lists(
            st.fixed_dictionaries(
                {"cpu": st.sampled_from(["athlon64", "xeon-e5410"]), "memory": st.sampled_from(["64M", "1G", "4G"])}
            ),
            min_size=1,
            unique_by=lambda machine: (machine["cpu"], machine["memory"]),
        ),
        "probes": subsets(probes()),
        "benchmark": st.fixed_dictionaries(
            {"name": st.just("gtodbench")},
            optional={"calls": st.integers(1, 1_000_000), "entry": st.sampled_from(["auto", "int80"])},
        ),
        "time_limit": st.integers(1, 86_400),
    }
)


@given(experiments)
def test_the_resolved_experiment_loads_as_itself(
    tmp_path_factory: pytest.TempPathFactory, fields: dict[str, object]
) -> None:
    file = tmp_path_factory.getbasetemp() / "resolved.yaml"
    file.write_text(yaml.safe_dump(fields), encoding="utf-8")
    experiment = load_experiment(file, kinds())
    file.write_text(experiment.resolved_yaml(), encoding="utf-8")
    again = load_experiment(file, kinds())
    assert again == experiment
    assert again.digest() == experiment.digest()
    assert plan(again) == plan(experiment)


anything = st.recursive(
    st.none() | st.booleans() | st.integers(-10, 10**7) | st.text() | st.sampled_from([*cpus(), *probes(), *kernels()]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["cpu", "name", "x"]), inner),
    max_leaves=8,
)


@example({"[key]": None})  # pydantic marks a wrong key of a mapping so
@given(st.dictionaries(st.sampled_from([*Heading.model_fields, *kinds().table_keys, "x"]) | st.text(), anything))
def test_any_yaml_is_loaded_or_refused(tmp_path_factory: pytest.TempPathFactory, data: dict[str, object]) -> None:
    file = tmp_path_factory.getbasetemp() / "anything.yaml"
    file.write_text(yaml.safe_dump(data), encoding="utf-8")
    place = str(file)
    try:
        load_experiment(file, kinds(), qemu_cpu_names=lambda: ["qemu32"])
    except ConfigError as error:
        place = error.where
    assert place.startswith(str(file))


# Is a bpftrace one-liner among the probes taken as it is written, and a wrong one refused before anything boots?

COUNTING = "kprobe:vfs_read { @[comm] = count(); }"


WITH_SLASHES = 'kretprobe:vfs_read /retval >= 0/ { printf("%d\\n", retval / 2); }'


def loaded(folder: Path, probe: str, image: str = "image: debian-amd64-bpftrace") -> Experiment:
    """An experiment with the line ``probe`` among its probes."""
    (folder / "one.yaml").write_text(
        f"""name: one-liner
{image}
kernels: [debian-amd64]
machines: [{{cpu: xeon-e5410}}]
points: [vfs_read]
probes:
  - none
  - {probe}
benchmark: {{name: syscall, call: read, arguments: [0, 0, 0]}}
"""
    )
    return load_experiment(folder / "one.yaml", kinds())


@pytest.mark.parametrize(
    "text",
    [COUNTING, WITH_SLASHES, 'kprobe:vfs_read { printf("} i:s:1 {"); @[1 ? 2 : 3, s:1] = 1; } END { clear(@); }'],
)
def test_a_one_liner_is_taken_as_it_is_written(tmp_path: Path, text: str) -> None:
    table = only_table(loaded(tmp_path, f"'bpftrace:  {text} '"), CallsTable)
    assert table.probes == ("none", f"bpftrace: {text}")
    kind = probe_kind(table.probes[1])
    assert (kind.one_liner, kind.title, kind.has_own_programs) == (text, f"bpftrace: {text}", True)


def test_one_liners_have_distinct_names_in_results() -> None:
    names = [probe_kind(f"bpftrace: {text}").name for text in (COUNTING, COUNTING.replace(";", " ;"), "@ = 1")]
    assert names == [
        "bpftrace.kprobe_vfs_read_comm_cou.aeb1cc",
        "bpftrace.kprobe_vfs_read_comm_cou.bd8ae2",
        "bpftrace.1.6c7c90",
    ]


def test_one_liners_cell_is_compared_with_the_baseline(tmp_path: Path) -> None:
    baseline, probed = call_cells(None, only_table(loaded(tmp_path, f"'bpftrace: {COUNTING}'"), CallsTable))
    assert probed.task.kind.one_liner == COUNTING
    assert (probed.compared_with, probed.image) == ((baseline.id,), "debian-amd64-bpftrace")


@pytest.mark.parametrize(
    ("text", "column"),
    [
        (COUNTING, f"bpftrace: {COUNTING}"),
        (WITH_SLASHES, "bpftrace: kretprobe:vfs_read /retval >= ... retval / 2); }"),
        (f"kprobe:vfs_read {{ @{'x' * 40} = 1; }}", "bpftrace: kprobe:vfs_read { ... xxxxxxxxx = 1; }"),
    ],
)
def test_one_liners_column_is_headed_by_the_line(tmp_path: Path, text: str, column: str) -> None:
    quoted = text.replace("'", "''")
    baseline, probed = call_cells(None, only_table(loaded(tmp_path, f"'bpftrace: {quoted}'"), CallsTable))
    assert (baseline.parameters.get("one_liner"), probed.parameters["one_liner"]) == (None, column)
    record = cell("kprobe").model_copy(update={"probe": probed.probe, "parameters": dict(probed.parameters)})
    assert heading(record) == column
    # A run of an earlier version has its name.
    assert heading(record.model_copy(update={"parameters": {}})) == probed.probe


@pytest.mark.parametrize(
    ("probe", "message"),
    [
        ("'bpftrace:'", "found 'bpftrace:'; a one-liner has a probe and an action: 'bpftrace: kprobe:vfs_read "),
        (f"'bpftrace: {'x' * 501}'", "found a one-liner of 501 characters; at most 500 are allowed"),
        ("'bpftrace: kprobe:vfs_réad { @ = count(); }'", "a one-liner has printable ASCII characters in one line"),
        ('"bpftrace: kprobe:vfs_read\\n{ @ = count(); }"', "a one-liner has printable ASCII characters in one line"),
        (
            "'bpftrace: interval:s:1 { print(@); }'",
            "found 'interval:s'; the clock hits it, and it has nothing that a call hits; name a function or",
        ),
        ("'bpftrace: i:ms:1,profile:hz:9 { @ = 1; }'", "found 'i:ms'; the clock hits it"),
        (f"bpftrace: {COUNTING}", "found a mapping; expected a probe's name; put a bpftrace one-liner in quotes"),
    ],
)
def test_a_wrong_one_is_refused_with_its_line(tmp_path: Path, probe: str, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        loaded(tmp_path, probe)
    assert message in str(raised.value)
    assert "one.yaml:8: " in str(raised.value)


def test_it_needs_an_image(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        loaded(tmp_path, f"'bpftrace: {COUNTING}'", image="channel: framed")
    assert "bpftrace is in an image: set image: debian-amd64-bpftrace, or one of your own that has it" in str(
        raised.value
    )
