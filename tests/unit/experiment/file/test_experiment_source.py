# SPDX-License-Identifier: GPL-2.0-only
"""Does the YAML reader survive anything, know its lines, and refuse what it must?"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import ConfigError
from orchestrator.experiment.source import MAX_BYTES, MAX_DEPTH, MAX_NODES, Data, Source, parse, read_source


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
        ("a: 1\nb: 2\na: 3", "x.yaml:3: key 'a' is here twice; first in line 1"),
        ("? [a]\n: 1", "x.yaml:1: a key must be plain text"),
        ("&k a: 1\n*k : 2", "x.yaml:2: a key must be plain text"),
        ("a: &x [1, *x]", "x.yaml:1: alias '*x' contains itself"),
        ("a: 1\nb: *x", "x.yaml:2: alias '*x' has no anchor before it"),
        ("a: 1\nb: \x07", "x.yaml:2: a character that YAML does not allow: U+0007"),
        ('a: 1\nb: "\\ud800"', "x.yaml:2: half a surrogate pair is no text"),
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
    with pytest.raises(ConfigError, match=r"a folder, and no file\nhint: name a file in it, such as .*quickstart.yaml"):
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
