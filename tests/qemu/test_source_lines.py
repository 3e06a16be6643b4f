# SPDX-License-Identifier: GPL-2.0-only
"""Does a profile by source line have every instruction, and does a difference name the line with a mistake?"""

from __future__ import annotations

import json
import subprocess
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine

from orchestrator.paths import data_dir
from orchestrator.results.contract import RunRecord

pytestmark = pytest.mark.qemu

EXPERIMENT = """\
name: own
kernels: [debian-686]
machines: [{cpu: pentium4}]
probes: [none, ./own.c.j2]
benchmark: {name: gtodbench, calls: 100, repeats: 2}
profile: [symbols]
"""
WORK = """\
static volatile int total;

static inline void add(int count)
{
\tint i;

\tfor (i = 0; i < count; i++)
\t\ttotal += i;
}
"""
LINE = "\t\ttotal += i;"
MISTAKE = "\t\ttotal += total * i / 3;"
"""In the place of ``LINE``, two lines further down."""
OPENS = """\
// SPDX-License-Identifier: GPL-2.0-only
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "GPL";

struct {
\t__uint(type, BPF_MAP_TYPE_HASH);
\t__uint(max_entries, 64);
\t__type(key, __u32);
\t__type(value, __u64);
} opens SEC(".maps");

static __attribute__((noinline)) void add_one(__u64 *count)
{
\t__sync_fetch_and_add(count, 1);
}

SEC("fentry/do_sys_openat2")
int on_open(void *context)
{
\t__u32 pid = bpf_get_current_pid_tgid() >> 32;
\t__u64 first = 1, *count = bpf_map_lookup_elem(&opens, &pid);

\tif (count)
\t\tadd_one(count);
\telse
\t\tbpf_map_update_elem(&opens, &pid, &first, BPF_ANY);
\treturn 0;
}
"""
HANDLER = "static int kprobe_func(struct kprobe *kp, struct pt_regs *regs)\n{\n"


@pytest.fixture
def command(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path / "lab")


def measured(command: CommandLine, folder: Path, work: str) -> str:
    """The run of the lab's own kprobe whose handler does this work."""
    template = (data_dir("kmods") / "templates" / "kprobe.c.j2").read_text()
    assert HANDLER in template
    (folder / "own.c.j2").write_text(f'#include "work.h"\n{template.replace(HANDLER, HANDLER + chr(9) + "add(10);")}')
    (folder / "work.h").write_text(work)
    (folder / "own.yaml").write_text(EXPERIMENT)
    done = command.run("run", folder / "own.yaml")
    assert done.returncode == 0, done.stderr
    return RunRecord.model_validate_json(command.run("report", "latest", "--format", "json").stdout, strict=False).run


def as_json(command: CommandLine, *arguments: str) -> list[dict[str, Any]]:
    done = command.run("profile", *arguments, "--format", "json")
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def test_a_mistake_is_named_by_its_line(command: CommandLine, tmp_path: Path) -> None:
    before = measured(command, tmp_path, WORK)
    after = measured(command, tmp_path, "/* A comment of\n * two lines. */\n" + WORK.replace(LINE, MISTAKE))
    cell = "pentium4/debian-686/own.c.j2/noop"

    # Offline the kernel's own debug information, 0.8 GB to fetch, is left out unless it is there.
    (by_symbol,) = as_json(command, f"{after}:{cell}")
    (by_line,) = as_json(command, f"{after}:{cell}", "--lines", "--offline")
    assert sum(Fraction(one["instructions"]) for one in by_line["symbols"]) == Fraction(by_symbol["instructions"])
    number = 2 + WORK.splitlines().index(LINE) + 1
    lines = {one["name"]: one["instructions"] for one in by_line["symbols"]}
    assert f"work.h:{number} add in kprobe_func [own_own]" in lines

    (difference,) = as_json(command, f"{before}:{cell}", f"{after}:{cell}", "--lines", "--offline")
    grown, *_ = difference["symbols"]  # the compiler may save one more register in the function's first line
    assert grown["symbol"] == f"work.h:{number} add in kprobe_func [own_own]"
    assert grown["change"] > 0.9 * difference["change"] > 0

    annotated = command.run("profile", f"{after}:{cell}", "--annotate", "kprobe_func", "--lines", "--offline")
    assert annotated.returncode == 0, annotated.stderr
    rows = [line for line in annotated.stdout.splitlines() if line.endswith(MISTAKE)]
    assert [row.split()[1] for row in rows] == [str(number)]

    tracefile = tmp_path / "own.info"
    written = command.run("profile", f"{after}:{cell}", "--lcov", tracefile, "--offline")
    assert written.returncode == 0, written.stderr
    (record,) = (one for one in tracefile.read_text().split("end_of_record\n") if "/work.h\n" in one)
    assert f"DA:{number},1000\n" in record  # 100 calls of ten rounds each


@pytest.mark.nightly("fetches the debug information of Debian's kernels, a gigabyte each, unless it is in the cache")
@pytest.mark.parametrize("kernel", ["debian-686", "debian-amd64", "debian-amd64@7.3"])
def test_the_lines_of_a_kernel_add_up(command: CommandLine, tmp_path: Path, kernel: str) -> None:
    check_sums(command, tmp_path, kernel)


@pytest.mark.nightly("compiles the kernel again with debug information: ten minutes of a processor")
def test_the_lines_of_the_lab_s_kernel_add_up(command: CommandLine, tmp_path: Path) -> None:
    lines = check_sums(command, tmp_path, "lab-i386-up")
    annotated = command.run("profile", "latest:kprobe", "--annotate", "get_kprobe", "--lines")
    assert annotated.returncode == 0, annotated.stderr
    assert "get_kprobe in get_kprobe, kernel/kprobes.c" in annotated.stdout
    assert "return __hash_32(val)" in annotated.stdout  # its source is in the cache
    assert any(name.endswith(" get_kprobe") for name in lines)


def check_sums(command: CommandLine, folder: Path, kernel: str) -> dict[str, float]:
    """Check that the lines of each cell add up to its value; return the lines of the kprobe's."""
    file = folder / "x.yaml"
    file.write_text(
        EXPERIMENT.replace("debian-686", kernel).replace("./own.c.j2", "kprobe").replace("pentium4", "athlon64")
    )
    done = command.run("run", file)
    assert done.returncode == 0, done.stderr
    answer = command.run("report", "latest", "--format", "json").stdout
    values = {cell.id: cell.value for cell in RunRecord.model_validate_json(answer, strict=False).cells}
    found = {one["cell"]: one for one in as_json(command, "latest", "--lines")}
    assert found.keys() == values.keys()
    lines: dict[str, float] = {}
    for cell, profile in found.items():
        lines = {one["name"]: one["instructions"] for one in profile["symbols"]}
        assert sum(map(Fraction, lines.values())) == Fraction(str(values[cell]))
        without = sum(count for name, count in lines.items() if name.startswith("(no line)"))
        assert without < 0.05 * float(values[cell] or 0)  # the program, and generated code
    assert any(name.startswith("arch/x86/kernel/kprobes/core.c:") for name in lines)
    return lines


@pytest.mark.nightly("a guest of each kernel with a BPF program of the user's, as a source and as an object")
@pytest.mark.parametrize("kernel", ["debian-amd64", "debian-amd64@7.3"])
def test_the_lines_of_a_bpf_program(command: CommandLine, tmp_path: Path, kernel: str) -> None:
    source, compiled = tmp_path / "opens.bpf.c", tmp_path / "built.o"
    source.write_text(OPENS)
    clang: list[str | Path] = [
        "clang",
        "-g",
        "-O2",
        "-target",
        "bpf",
        "-I/usr/include/x86_64-linux-gnu",
        "-c",
        source,
        "-o",
        compiled,
    ]
    subprocess.run(clang, check=True)
    done = command.run("cost", source, compiled, "--kernels", kernel)
    assert done.returncode == 0, done.stderr
    numbers = {text.strip(): number for number, text in enumerate(OPENS.splitlines(), 1)}

    for cell in ("latest:*/opens.bpf.c*", "latest:*/built.o*"):
        (by_symbol,) = as_json(command, cell)
        (by_line,) = as_json(command, cell, "--lines", "--offline")
        lines = {one["name"]: one["instructions"] for one in by_line["symbols"]}
        assert sum(Fraction(str(line)) for line in lines.values()) == Fraction(str(by_symbol["instructions"]))
        for function in ("BPF program on_open", "BPF program add_one"):
            own = {name: count for name, count in lines.items() if name.endswith(f" {function}")}
            (whole,) = (one["instructions"] for one in by_symbol["symbols"] if one["name"] == function)
            assert sum(Fraction(str(one)) for one in own.values()) == Fraction(str(whole))
            assert own.pop(f"(no line) {function}", 0) <= 0.2 * whole  # the compiler names none of some instructions
            assert own.keys() <= {f"opens.bpf.c:{number} {function}" for number in range(1, OPENS.count("\n") + 1)}
        assert lines[f"opens.bpf.c:{numbers['if (count)']} BPF program on_open"] >= 1
        assert lines[f"opens.bpf.c:{numbers['__sync_fetch_and_add(count, 1);']} BPF program add_one"] >= 1

        annotated = command.run("profile", cell, "--annotate", "BPF program on_open", "--lines", "--offline")
        assert annotated.returncode == 0, annotated.stderr
        assert any(
            row.split()[1:] == [str(numbers["if (count)"]), "if", "(count)"] for row in annotated.stdout.split("\n")
        )
        tracefile = tmp_path / "own.info"
        assert command.run("profile", cell, "--lcov", tracefile, "--offline").returncode == 0
        (record,) = (one for one in tracefile.read_text().split("end_of_record\n") if f"SF:{source}\n" in one)
        assert f"DA:{numbers['bpf_map_update_elem(&opens, &pid, &first, BPF_ANY);']},0\n" in record

    # A source that was changed since is not printed as the measured one: the run's copy is.
    source.write_text(OPENS.replace("if (count)", "if (first)"))
    words = ["profile", "latest:*/opens*", "--annotate", "BPF program on_open", "--lines", "--offline"]
    annotated = command.run_apart(*words)
    assert "\tif (count)" in annotated.stdout
