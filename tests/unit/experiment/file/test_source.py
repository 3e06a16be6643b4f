# SPDX-License-Identifier: GPL-2.0-only
"""Does the YAML reader survive anything, know its lines, and refuse what it must?"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hostile_texts import hostile_texts
from hypothesis import example, given
from hypothesis import strategies as st
from loaded_tables import only_table

from orchestrator.benchmarks.calls.calls_table import CallsTable
from orchestrator.benchmarks.registry import kinds
from orchestrator.catalog.cpus import cpu
from orchestrator.catalog.kernels import kernels
from orchestrator.errors import ConfigError
from orchestrator.experiment.experiment import Experiment
from orchestrator.experiment.file import load_experiment
from orchestrator.experiment.plan import plan
from orchestrator.experiment.source import MAX_BYTES, MAX_DEPTH, MAX_NODES, Data, Source, parse, read_source
from orchestrator.guest.machine import Machine
from orchestrator.guest.qemu_command import Wiring, qemu_command


def parsed(text: str) -> Source:
    return parse(text, lambda line: f"x.yaml:{line}")


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parsed(text)
    return str(caught.value).splitlines()[0]


def depth(data: Data) -> int:
    if isinstance(data, dict):
        return 1 + max(map(depth, data.values()), default=0)
    return 1 + max(map(depth, data), default=0) if isinstance(data, list) else 1


def test_data_and_the_line_of_every_part() -> None:
    source = parsed("# comment\na: 1\nlist:\n  - x\n  - {k: true,\n     l: ~}\nempty:\n")
    assert source.data == {"a": 1, "list": ["x", {"k": True, "l": None}], "empty": None}
    assert source.lines == {
        (): 2,
        ("a",): 2,
        ("list",): 3,
        ("list", 0): 4,
        ("list", 1): 5,
        ("list", 1, "k"): 5,
        ("list", 1, "l"): 6,
        ("empty",): 7,
    }


@pytest.mark.parametrize("text", ["no", "1.5", "0x10", "010", "1:30", "2005-07-13", "1e3", "+5", "9" * 5000, '"1"'])
def test_other_scalars_stay_text(text: str) -> None:
    assert parsed(text).data == text.strip('"')


@pytest.mark.parametrize(("text", "value"), [("-7", -7), ("TRUE", True), ("null", None), ("", None)])
def test_core_scalars(text: str, value: Data) -> None:
    assert parsed(text).data == value


def test_aliases_are_copies_that_keep_the_lines_of_their_anchor() -> None:
    source = parsed("a: &m\n  k: 1\nb: *m\nc: [*m]\n")
    assert source.data == {"a": {"k": 1}, "b": {"k": 1}, "c": [{"k": 1}]}
    assert isinstance(source.data, dict)
    assert source.data["a"] is not source.data["b"]
    assert source.lines["b",] == 3
    assert source.lines["b", "k"] == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: [1", "x.yaml:2: malformed YAML: a list that begins here is not closed"),
        ("a: 1\nb: c: d", "x.yaml:2: malformed YAML: a ': ' where no key can be"),
        ("a: 1\n---\nb: 2", "x.yaml:2: a second YAML document"),
        ("a: !!python/object/apply:os.system [id]", "x.yaml:1: YAML tag '!!python/object/apply:os.system' is not"),
        ("\na: !mine 1", "x.yaml:2: YAML tag '!mine' is not allowed"),
        ("a: ! 1", "x.yaml:1: YAML tag '!' is not allowed"),
        ("!k a: 1", "x.yaml:1: YAML tag '!k' is not allowed"),
        ("a: 1\nb: 2\na: 3", "x.yaml:3: duplicate key 'a', first in line 1"),
        ("? [a]\n: 1", "x.yaml:1: a key must be plain text"),
        ("&k a: 1\n*k : 2", "x.yaml:2: a key must be plain text"),
        ("a: &x [1, *x]", "x.yaml:1: alias '*x' contains itself"),
        ("a: 1\nb: *x", "x.yaml:2: alias '*x' has no anchor before it"),
        ("a: 1\nb: \x07", "x.yaml:2: a character that YAML does not allow: U+0007"),
        ('a: 1\nb: "\\ud800"', "x.yaml:2: half of a surrogate pair is not text"),
        ('a: "\\UFFFFFFFF"', "x.yaml:1: malformed YAML: "),
        ("%YAML 1." + "9" * 5000 + "\n---\na: 1", "x.yaml:1: malformed YAML: "),
    ],
)
def test_refusals_have_a_reason_and_a_line(text: str, message: str) -> None:
    assert refusal(text).startswith(message)


def test_nesting_is_bounded() -> None:
    assert depth(parsed("[" * MAX_DEPTH + "]" * MAX_DEPTH).data) == MAX_DEPTH
    assert refusal("[" * 60_000) == f"x.yaml:1: nested more than {MAX_DEPTH} deep"
    doubling = "".join(f"l{i}: &l{i} [{f'*l{i - 1}' if i else 1}]\n" for i in range(MAX_DEPTH + 1))
    assert refusal(doubling) == f"x.yaml:{MAX_DEPTH - 1}: nested more than {MAX_DEPTH} deep"


def test_alias_bombs_are_refused_before_they_expand() -> None:
    bomb = "a: &a [1,1,1,1,1,1,1,1,1]\n" + "".join(
        f"{name}: &{name} [{','.join(['*' + before] * 9)}]\n"
        for before, name in zip("abcdefgh", "bcdefghi", strict=True)
    )
    assert refusal(bomb) == f"x.yaml:5: more than {MAX_NODES} values, with aliases written out"


def test_the_node_budget_is_exact() -> None:
    assert len(parsed("[" + "1," * (MAX_NODES - 1) + "]").lines) == MAX_NODES
    assert "more than" in refusal("[" + "1," * MAX_NODES + "]")


def test_unreadable_files(tmp_path: Path) -> None:
    (tmp_path / "quickstart.yaml").touch()
    with pytest.raises(ConfigError, match=r"quikstart.yaml: no such file\nhint: did you mean '.*/quickstart.yaml'\?"):
        read_source(tmp_path / "quikstart.yaml")
    with pytest.raises(
        ConfigError, match=r"is a folder; expected a file\nhint: name a file in it, such as .*quickstart.yaml"
    ):
        read_source(tmp_path)
    with pytest.raises(ConfigError, match=r"no such file$"):
        read_source(tmp_path / "nowhere" / "x.yaml")
    with pytest.raises(ConfigError, match="cannot be read: not a directory"):
        read_source(tmp_path / "quickstart.yaml" / "x.yaml")
    with pytest.raises(ConfigError, match="cannot be read: embedded null byte"):
        read_source(Path("a\0b"))


def test_files_that_are_no_experiment(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_bytes(b"#" * (MAX_BYTES + 1))
    with pytest.raises(ConfigError, match="larger than 64 KiB"):
        read_source(file)
    file.write_bytes(b"a: 1\nb: \xff\n")
    with pytest.raises(ConfigError, match=r"x\.yaml:2: not UTF-8 text"):
        read_source(file)
    file.write_bytes(b"\xef\xbb\xbfa: 1\n")
    assert read_source(file).data == {"a": 1}


@given(st.one_of(st.binary(max_size=300), st.text(max_size=300).map(lambda text: text.encode(errors="surrogatepass"))))
def test_any_bytes_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    file = tmp_path_factory.getbasetemp() / "any.yaml"
    file.write_bytes(content)
    place = str(file)
    try:
        assert () in read_source(file).lines
    except ConfigError as error:
        place = error.where
    assert place.startswith(str(file))


SIGNS = """&a *a - : ? ! !!x | > % --- ... { } [ ] , # ' " \\U \\x a 1 @ ` <<"""


@given(st.lists(st.sampled_from([*SIGNS.split(), "\n", " "])))
def test_any_mixture_of_yaml_s_own_signs_is_read_or_refused(signs: list[str]) -> None:
    place = "x.yaml:"
    try:
        assert all(line >= 1 for line in parsed("".join(signs)).lines.values())
    except ConfigError as error:
        place = error.where
    assert place.startswith("x.yaml:")


plain_data = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**17), 10**17) | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


@given(plain_data)
def test_pyyamls_output_is_read_back(data: Data) -> None:
    assert parsed(yaml.safe_dump(data)).data == data


# Does whatever stands in any field of an experiment file stay in its place, or is refused with file, line and key?

ORDINARY: dict[str, Any] = {
    "name": "small",
    "description": "one line",
    "clock": "instructions",
    "kernels": ["debian-686", "lab-i386-up"],
    "kernel_for": {"kprobe": "lab-i386-up"},
    "machines": [{"cpu": "pentium4", "smp": 1, "memory": "256M"}, {"cpu": "athlon", "memory": "1G"}],
    "probes": ["none", "kprobe"],
    "handlers": ["noop"],
    "points": ["do_nanosleep+0x5"],
    "profile": ["symbols"],
    "channel": "framed",
    "time_limit": 60,
    "benchmark": {
        "name": "syscall",
        "call": "open",
        "arguments": ["/nowhere", 0, {"buffer": 10}],
        "expect": "ENOENT",
        "entry": "int80",
        "calls": 1000,
        "repeats": 4,
        "hits": 1,
    },
}


CPU_NAMES = frozenset({"qemu64", "pentium", "max"})
"""Models of QEMU's own."""


def places(part: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The paths of all values, of single ones and of those that hold others."""
    if path:
        yield path
    if isinstance(part, dict):
        for key, value in part.items():
            yield from places(value, (*path, key))
    if isinstance(part, list):
        for index, value in enumerate(part):
            yield from places(value, (*path, index))


def value_at(part: Any, path: tuple[str | int, ...]) -> Any:
    for step in path:
        part = part[step]
    return part


def replaced(part: Any, path: tuple[str | int, ...], value: object) -> Any:
    """A copy with another value at a path."""
    if not path:
        return value
    first, *rest = path
    if isinstance(part, dict):
        return {key: replaced(inner, tuple(rest), value) if key == first else inner for key, inner in part.items()}
    return [replaced(inner, tuple(rest), value) if n == first else inner for n, inner in enumerate(part)]


def renamed(part: Any, path: tuple[str | int, ...], name: str) -> Any:
    """A copy in which the key at a path has another name."""
    holder = value_at(ORDINARY, path[:-1])
    return replaced(part, path[:-1], {name if key == path[-1] else key: value for key, value in holder.items()})


PLACES = list(places(ORDINARY))


KEYS = [path for path in PLACES if isinstance(path[-1], str)]


@st.composite
def hostile_files(draw: st.DrawFn) -> tuple[tuple[str | int, ...], dict[str, Any]]:
    """A place, and an experiment with something hostile there: alone, or before or behind what is right."""
    path, text = draw(st.sampled_from(PLACES)), draw(hostile_texts)
    right = value_at(ORDINARY, path)
    if isinstance(right, str):
        text = draw(st.sampled_from([text, right + text, text + right]))
    return path, replaced(ORDINARY, path, text)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the experiment is: a folder with nothing else in it."""
    return tmp_path_factory.mktemp("hostile") / "x.yaml"


def loaded(file: Path, content: object) -> Experiment | None:
    """The experiment; None where it is refused, which must say where and how."""
    file.write_text(yaml.safe_dump(content, allow_unicode=True), encoding="utf-8")
    try:
        return load_experiment(file, kinds(), (), lambda: CPU_NAMES)
    except ConfigError as error:
        check_refusal(error, rf"{re.escape(str(file))}:\d+")
        return None


def check_refusal(error: ConfigError, place: str) -> None:
    """It says where, and is safe to print."""
    assert any(re.match(place, line) for line in [error.where, *error.detail]), error
    assert all(line.isprintable() for line in [error.what, error.hint, error.where, *error.detail]), error


def check_boots(experiment: Experiment) -> None:
    """What reaches QEMU and the guest's kernel is of the catalogue, or of the shape that its place has."""
    table = only_table(experiment, CallsTable)
    assert set(table.all_kernels) <= set(kernels())
    for boot in plan(experiment).boots:
        machine = Machine(cpu(boot.guest.cpu), Path("/k"), Path("/i"), boot.guest.smp, boot.guest.memory_mib)
        usual = Machine(cpu("pentium4"), Path("/k"), Path("/i"), boot.guest.smp)
        command, expected = (qemu_command(one, Wiring(3, 4, Path("/c"))) for one in (machine, usual))
        assert len(command) == len(expected)
        changed = {expected[n - 1] for n, word in enumerate(command) if word != expected[n]}
        assert changed <= {"-cpu", "-m"}
        assert re.fullmatch(r"[1-9][0-9]{1,3}M", command[command.index("-m") + 1], re.ASCII)
        assert machine.cpu.name in {"pentium4", "athlon", *CPU_NAMES} or "," not in boot.guest.cpu
    for point in table.points or ():
        assert (
            re.fullmatch(
                r"((program|[A-Za-z0-9_][A-Za-z0-9_.+-]*\.so[.0-9A-Za-z]*):([A-Za-z_][A-Za-z0-9_]*:)?)?"
                r"[A-Za-z_][A-Za-z0-9_.]*(\+0x[0-9a-f]+)?",
                point,
                re.ASCII,
            )
            or table.points == "executed"
        )


@given(hostile_files())
@example((("machines", 0, "memory"), replaced(ORDINARY, ("machines", 0, "memory"), "256M,slots=2,maxmem=9G")))
@example((("machines", 0, "cpu"), replaced(ORDINARY, ("machines", 0, "cpu"), "pentium4,+avx")))
@example((("points", 0), replaced(ORDINARY, ("points", 0), '"; panic("x"); "')))
@example((("kernels", 0), replaced(ORDINARY, ("kernels", 0), "./a\0b")))
def test_a_value_stays_in_its_place_or_is_refused(
    file: Path, drawn: tuple[tuple[str | int, ...], dict[str, Any]]
) -> None:
    path, content = drawn
    experiment = loaded(file, content)
    if experiment is None:
        return
    check_boots(experiment)
    # Nothing else than what was written there has changed.
    text = value_at(content, path)
    table = only_table(experiment, CallsTable)
    if path[:2] == ("benchmark", "arguments"):
        assert table.benchmark.arguments[int(path[2])] == text
        assert text.isprintable()
    elif path != ("description",):
        assert re.fullmatch(r"[A-Za-z0-9_.+-]+", text, re.ASCII), (path, text)


@given(st.sampled_from(KEYS), hostile_texts)
def test_a_key_is_one_of_the_schema_s_or_is_refused(file: Path, path: tuple[str | int, ...], name: str) -> None:
    keys = set(value_at(ORDINARY, path[:-1]))
    experiment = loaded(file, renamed(ORDINARY, path, name))
    assert experiment is None or name in keys or re.fullmatch(r"[a-z-]+", name), (path, name)


@given(st.sampled_from(PLACES), hostile_texts)
def test_an_override_is_a_value_or_refused(file: Path, path: tuple[str | int, ...], text: str) -> None:
    file.write_text(yaml.safe_dump(ORDINARY), encoding="utf-8")
    override = f"{'.'.join(map(str, path))}={text}"
    try:
        experiment = load_experiment(file, kinds(), [override], lambda: CPU_NAMES)
    except ConfigError as error:
        check_refusal(error, rf"--set |{re.escape(str(file))}:\d+")
    else:
        check_boots(experiment)
