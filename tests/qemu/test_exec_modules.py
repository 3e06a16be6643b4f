# SPDX-License-Identifier: GPL-2.0-only
"""Does ``exec`` build and load a module in whatever form it comes, with its parameters, and fetch files afterwards?"""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import CommandLine

pytestmark = [pytest.mark.qemu, pytest.mark.kernels("lab-i386-up")]

FOLDER = Path(__file__).with_name("modules") / "two_modules"
GUEST = ("exec", "--kernel", "lab-i386-up", "--cpu", "pentium4")
ATTEMPTS = 4
"""To find the CPU in a function that spins: one time in twenty it serves a timer's interrupt just then."""
GREETING = ("--", "sh", "-c", "dmesg | grep -o 'greeting: .*'")

ECHO = """\
#include <linux/module.h>
static char *text = "nothing";
module_param(text, charp, 0444);
static int __init echo_init(void)
{
	pr_info("greeting: %s\\n", text);
	return 0;
}
module_init(echo_init);
MODULE_LICENSE("GPL");
"""

INCLUDES = """\
#define CREATE_TRACE_POINTS
#include "trace/echo_trace.h"
#define NUMBERS "../echo-numbers/number.h"
#include NUMBERS
"""
HEADERS = {
    "../echo-numbers/number.h": "#define NUMBER number()\nint number(void);\n",
    "../echo-numbers/number.c": '#include "number.h"\n\nint number(void)\n{\n\treturn 42;\n}\n',
    "trace/echo_trace.h": """\
#undef TRACE_SYSTEM
#define TRACE_SYSTEM echo
#if !defined(ECHO_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define ECHO_TRACE_H
#include <linux/tracepoint.h>
#include "fields.h"
TRACE_EVENT(echo_begun, TP_PROTO(int number), TP_ARGS(number),
	TP_STRUCT__entry(FIELD), TP_fast_assign(__entry->number = number;), TP_printk("number=%d", __entry->number));
#endif
#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH trace
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE echo_trace
#include <trace/define_trace.h>
""",
    "trace/fields.h": "#define FIELD __field(int, number)\n",
}
"""A tracepoint of the module's own, whose header the kernel's includes, and a file that a macro names."""


@pytest.fixture
def command(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path / "lab")


def test_a_folder_of_two_modules_with_parameters_and_a_variable(command: CommandLine) -> None:
    parameters = ("--param", "count=3", "--param", "greeting.whom=all", "--set", "WORDS=7")
    done = command.run(*GUEST, "--module", f"{FOLDER}:greeting", *parameters, *GREETING)
    assert (done.returncode, done.stdout) == (0, "greeting: 3 times 7 words for all\n"), done.stderr


def test_a_c_file_a_template_and_a_built_module(command: CommandLine, tmp_path: Path) -> None:
    path = tmp_path / "own"
    main = INCLUDES + ECHO.replace("return 0", "trace_echo_begun(NUMBER);\n\treturn 0")
    for name, text in {**HEADERS, "echo.c": main}.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(text)
    (tmp_path / "second-echo.c.j2").write_text(ECHO.replace("greeting: ", "greeting: {{ prefix }} "))
    both = ("--module", path / "echo.c", "--module", tmp_path / "second-echo.c.j2", "--set", "prefix=rendered")
    parameters = ("--param", "echo.text=a b;c", "--param", "second-echo.text=$HOME")
    done = command.run(*GUEST, *both, *parameters, *GREETING)
    assert (done.returncode, done.stdout) == (0, "greeting: a b;c\ngreeting: rendered $HOME\n"), done.stderr


@pytest.mark.nightly("a build that fails; tests/unit/wrong/modules.yaml has such builds every day")
def test_a_module_that_does_not_build_names_the_users_line(command: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "echo.c").write_text(ECHO.replace("return 0;", "return nought;"))
    done = command.run(*GUEST, "--module", tmp_path / "echo.c", *GREETING)
    assert done.returncode == 1
    assert f"{tmp_path}/echo.c:7" in done.stderr
    assert "Traceback" not in done.stderr
    assert command.qemus() == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--module", str(FOLDER)), "builds 2 modules: greeting, words"),
        (("--module", f"{FOLDER}:greting"), "did you mean 'greeting'?"),
        (("--module", f"{FOLDER}:words", "--param", "greeting.count=1"), "unknown module 'greeting'; allowed: words"),
        (
            (f"--module={FOLDER}:greeting", "--param", "counts=1"),
            "greeting: unknown parameter 'counts'; allowed: count",
        ),
        (
            (f"--module={FOLDER}:words", "--param", "count=1"),
            "words has no parameter 'count': it has no parameters at all",
        ),
    ],
)
def test_wrong_choice_of_modules_is_refused(command: CommandLine, options: tuple[str, ...], words: str) -> None:
    done = command.refused(*GUEST, *options, "--", "true")
    assert done.returncode == 2, done.stderr
    assert words in " ".join(done.stderr.split())


@pytest.mark.nightly("a guest more; test_refused_modules.py has such a parameter every day")
def test_a_parameter_that_the_module_does_not_take_is_the_kernels_refusal(command: CommandLine) -> None:
    done = command.run(*GUEST, "--module", f"{FOLDER}:greeting", "--param", "count=many", "--", "true")
    assert done.returncode == 1
    assert "module greeting was not accepted by the guest's kernel" in done.stderr
    assert "invalid for parameter `count'" in done.stderr


def test_files_and_a_folder_come_out_also_after_a_command_that_failed(command: CommandLine, tmp_path: Path) -> None:
    results = tmp_path / "results"
    script = (
        "cd /scratch && mkdir -p a/b && printf one >a/b/x && : >'an empty one' && ln -s /etc/passwd link && mkfifo p; "
        "printf 'one\\0two' >/tmp/a.bin; : >/tmp/empty; exit 5"
    )
    wanted = [word for path in ("/tmp/a.bin", "/tmp/empty", "/scratch") for word in ("--get", path)]
    done = command.run(*GUEST, *wanted, "--out", results, "--", "sh", "-c", script)
    assert done.returncode == 5, done.stderr
    there = {str(file.relative_to(results)): file.read_bytes() for file in results.rglob("*") if not file.is_dir()}
    assert there == {"a.bin": b"one\0two", "empty": b"", "scratch/a/b/x": b"one", "scratch/an empty one": b""}
    assert f"copied the guest's /scratch to {results / 'scratch'} (files: 2, bytes: 3)" in done.stderr
    assert "2 of /scratch were left out: links, special files" in done.stderr


@pytest.mark.parametrize(
    ("status", "exits_with"), [(0, 1), pytest.param(5, 5, marks=pytest.mark.nightly("a guest more"))]
)
def test_a_file_that_is_not_there_is_a_failure(
    command: CommandLine, tmp_path: Path, status: int, exits_with: int
) -> None:
    done = command.run(*GUEST, "--get", "/tmp/none", "--out", tmp_path, "--", "sh", "-c", f"exit {status}")
    assert done.returncode == exits_with, done.stderr
    assert "/tmp/none" in done.stderr
    assert "no such file" in done.stderr
    assert not (tmp_path / "none").exists()


def test_a_folder_of_too_many_files_is_not_copied(command: CommandLine, tmp_path: Path) -> None:
    script = "cd /scratch && seq 1001 | xargs touch"
    done = command.run(*GUEST, "--get", "/scratch", "--out", tmp_path / "results", "--", "sh", "-c", script)
    assert done.returncode == 1
    assert "/scratch of the guest has 1001 files, and at most 1000 are copied" in done.stderr
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("waits", "state"),
    [
        ("cpu_relax()", ", and the guest does not answer any more; its CPU is"),
        pytest.param("msleep(100)", "; it is", marks=pytest.mark.nightly("a guest more")),
    ],
)
def test_an_init_function_that_does_not_return(
    command: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: str, state: str
) -> None:
    monkeypatch.setattr("orchestrator.guest.framed.DEATH_LIMIT", 0.5)
    source = ECHO.replace("echo", "endless").replace('pr_info("greeting: %s\\n", text);', f"for (;;) {waits};")
    (tmp_path / "endless.c").write_text(f"#include <linux/delay.h>\n{source}")
    for _ in range(ATTEMPTS):
        done = command.run(*GUEST, "--timeout", "1", "--module", tmp_path / "endless.c", "--", "true")
        assert done.returncode == 1
        said = " ".join(done.stderr.split())
        assert "the init function of module endless has not returned: " in said
        assert "hint: an init function must return" in said
        assert "Kernel panic" not in said
        if f"insmod did not end within 1 s{state} in endless_init [endless]" in said:
            return
    pytest.fail(said)
