# SPDX-License-Identifier: GPL-2.0-only
"""Does the kernel's own checkpatch.pl --strict accept the modules, as they are written and as they are rendered?"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

import pytest
import yaml
from hostile_texts import HOSTILE, hostile_texts
from hypothesis import given

from orchestrator.artifacts.cache import digest
from orchestrator.artifacts.module_source import Value, check_parameters, module_folders, render, render_own, templates
from orchestrator.benchmarks.calls.benchmarks import capability_grants
from orchestrator.errors import ConfigError, LabError, UsageError
from orchestrator.paths import cache_dir, data_dir, kbuild_takes
from orchestrator.probes.recorder import MECHANISMS, recorder_values

KMODS = data_dir("kmods")


RULES = yaml.safe_load((KMODS / "checkpatch.yaml").read_text())


POINT: Mapping[str, Value] = {"symbol": "__ia32_sys_gettimeofday", "offset": 5, "number": 78}


CHOICES: Sequence[Mapping[str, Value]] = [
    {},
    {"wrapper": 0},
    *({name: 1} for name in ("single_step", "own_booster", "hold_optimiser")),
]


_LINE = re.compile(r"(?P<file>.+?):(?P<line>\d+): (?:ERROR|WARNING|CHECK):(?P<type>\w+): (?P<message>.*)")


@dataclass(frozen=True)
class Complaint:
    """What checkpatch says of one line: ``file`` as below kmods, ``text`` the line itself."""

    file: str
    line: int
    type: str
    message: str
    text: str

    def is_excepted_by(self, exception: Mapping[str, object]) -> bool:
        """Whether an entry of checkpatch.yaml lets it stay."""
        files = exception["files"]
        assert isinstance(files, list)
        return (
            exception["type"] == self.type
            and any(fnmatch(self.file, str(pattern)) for pattern in files)
            and re.search(str(exception.get("line", "")), self.text) is not None
        )


def plain() -> Iterator[tuple[str, str]]:
    """The sources that are no templates, by their paths below kmods."""
    for folder in module_folders():
        for file in sorted(folder.iterdir()):
            if file.suffix in (".c", ".h", ".S"):
                yield f"{folder.name}/{file.name}", file.read_text()


def rendered() -> Iterator[tuple[str, str]]:
    """The templates in all their forms, each form once, by the template's path."""
    for name, file in templates().items():
        values: list[Mapping[str, Value]] = [{**POINT, **choice} for choice in CHOICES]
        if name == "recorder":
            values = [recorder_values(mechanism, "i386") for mechanism in MECHANISMS]
        if name.startswith("capability_"):
            kind = name.partition("_")[2]
            names = [one for one, (probe, *_) in capability_grants().items() if probe == kind]
            values = [{**POINT, "capability": one.partition(".")[2].replace("-", "_")} for one in names]
        sources = [render(name, choice) for choice in values]
        for text in dict.fromkeys(source.files[f"{source.name}_main.c"] for source in sources):
            yield f"{file.parent.name}/{file.name}", text


@pytest.fixture(scope="module")
def checkpatch() -> Sequence[str]:
    """The command: the oldest script of the kernel sources in the cache. Newer ones need fewer exceptions."""
    scripts = list(cache_dir().glob("kernel-source/*/linux/scripts/checkpatch.pl"))
    if not scripts:
        pytest.skip("no kernel's source is unpacked in the cache; building a kernel unpacks it: ./lab build kernel")
    perl = shutil.which("perl")
    if perl is None:
        pytest.skip("perl is not installed")
    oldest = min(scripts, key=lambda script: script.stat().st_mtime)  # the time is the release's
    return [perl, str(oldest), "--no-tree", "--strict", "--terse", "--show-types"]


@pytest.fixture(scope="module")
def complaints(checkpatch: Sequence[str], tmp_path_factory: pytest.TempPathFactory) -> Sequence[Complaint]:
    """All that checkpatch complains of."""
    origins: dict[str, tuple[str, str]] = {}
    for number, (origin, text) in enumerate([*plain(), *rendered()]):
        origins[f"{number}{Path(origin.removesuffix('.j2')).suffix}"] = (origin, text)
    texts = {name: text for name, (_, text) in origins.items()}
    found = []
    for match in _LINE.finditer(printed_on(texts, checkpatch, tmp_path_factory.mktemp("checkpatch"))):
        origin, text = origins[match["file"]]
        line = int(match["line"])
        found.append(Complaint(origin, line, match["type"], match["message"], text.splitlines()[line - 1]))
    return found


def printed_on(texts: Mapping[str, str], checkpatch: Sequence[str], folder: Path) -> str:
    """What checkpatch prints on files of these names, kept in the cache: it takes ten seconds of a processor."""
    options = [*checkpatch[2:], f"--max-line-length={RULES['max_line_length']}"]
    script = Path(checkpatch[1])
    # Its lists of words and of structures.
    beside = {name: (script.parent / name).read_text() for name in ("spelling.txt", "const_structs.checkpatch")}
    kept = cache_dir() / "checks/checkpatch" / digest([options, script.read_text(), beside, dict(texts)])
    if kept.exists():
        return kept.read_text()
    for name, text in texts.items():
        (folder / name).write_text(text)
    argv = [*checkpatch[:2], *options, "-f", *(str(folder / name) for name in texts)]
    # The script's directory, where it finds its lists of words and types.
    finished = subprocess.run(argv, cwd=script.parent, capture_output=True, text=True)
    assert finished.returncode in (0, 1), finished.stderr
    printed = finished.stdout.replace(f"{folder}/", "")
    kept.parent.mkdir(parents=True, exist_ok=True)
    # Part of the text, of a test that was ended, would hide the complaints behind it.
    with tempfile.NamedTemporaryFile("w", dir=kept.parent, delete=False) as written:
        written.write(printed)
    Path(written.name).replace(kept)
    return printed


@pytest.mark.parametrize("folder", [folder.name for folder in module_folders()])
def test_checkpatch_is_clean_but_for_what_has_a_reason(complaints: Sequence[Complaint], folder: str) -> None:
    here = [complaint for complaint in complaints if complaint.file.startswith(f"{folder}/")]
    left = [
        complaint for complaint in here if not any(complaint.is_excepted_by(entry) for entry in RULES["exceptions"])
    ]
    assert not left, "\n".join(
        f"{complaint.file}:{complaint.line}: {complaint.type}: {complaint.message}: {complaint.text}"
        for complaint in left
    )


def test_each_exception_is_needed(complaints: Sequence[Complaint]) -> None:
    for entry in RULES["exceptions"]:
        assert entry["reason"]
        assert any(complaint.is_excepted_by(entry) for complaint in complaints), entry


# Does a template of somebody's reach nothing but its values, and a path of any name no shell and no make?

BREAKING_OUT = [
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ cycler.__init__.__globals__.os.popen('touch broken-out') }}",
    "{{ self.__init__.__globals__ }}",
    "{{ lipsum.__globals__['os'].environ }}",
    "{{ symbol.format.__globals__ }}",
    "{{ '{0.__class__}'.format(symbol) }}",
    "{% include '../secret' %}",
    "{% include '/etc/passwd' %}",
    "{% import 'os' as os %}",
]


FAILING = [
    *("{{ 1 // 0 }}", "{{ 1 + 'a' }}", "{{ range(1000000) | list }}", "{{ ''.join(1) }}", "{{ 'a'.index('b') }}"),
    "{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}",
]


@pytest.mark.parametrize("expression", BREAKING_OUT)
def test_a_template_does_not_get_out(tmp_path: Path, expression: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "modules"
    folder.mkdir()
    monkeypatch.chdir(folder)
    (tmp_path / "secret").write_text("secret")
    (folder / "mine.c.j2").write_text(f"int a;\n{expression}\n")
    with pytest.raises(LabError) as refused:
        render_own(folder / "mine.c.j2", {"symbol": "do_nanosleep"})
    assert refused.value.what
    assert [file.name for file in folder.iterdir()] == ["mine.c.j2"]


@pytest.mark.parametrize("expression", FAILING)
def test_a_template_that_fails_is_an_error_with_its_line(tmp_path: Path, expression: str) -> None:
    file = tmp_path / "mine.c.j2"
    file.write_text(f"int a;\n{expression}\n")
    with pytest.raises(ConfigError, match="the template fails: ") as failed:
        render_own(file, {})
    assert failed.value.where == f"{file}:2"


@pytest.mark.parametrize("text", HOSTILE)
def test_a_value_is_a_word_of_c_or_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "mine.c.j2"
    file.write_text('const char *name = "{{ symbol }}";\n')
    try:
        source = render_own(file, {"symbol": text})
        check_parameters({"symbol": text})
    except UsageError as error:
        refusal = error
        assert refusal.what.isprintable()
    else:
        (literal,) = re.findall(r'"((?:[^"\\\n]|\\.)*)"', source.files["own_mine_main.c"])
        assert literal == text


def probed(path: Path) -> list[str]:
    """The words that a shell makes of a path that make gives it unquoted."""
    makefile = "all:\n\t@printf '%s\\n' $(M)/x\n"
    done = subprocess.run(["make", "-f", "-", f"M={path}"], input=makefile, capture_output=True, check=True, text=True)
    return done.stdout.splitlines()


@given(hostile_texts)
def test_a_path_that_the_build_takes_is_one_word(text: str) -> None:
    path = Path("/x", text.replace("\0", "_").replace("/", "_") or "_")
    if kbuild_takes(path):
        assert shlex.split(str(path)) == [str(path)]


@pytest.mark.parametrize("text", HOSTILE)
def test_a_path_that_the_build_takes_is_the_same_for_make_and_its_shell(text: str) -> None:
    path = Path("/x", text.replace("\0", "_").replace("/", "_") or "_")
    if kbuild_takes(path):
        assert probed(path) == [f"{path}/x"]
