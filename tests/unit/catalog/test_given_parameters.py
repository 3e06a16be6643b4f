# SPDX-License-Identifier: GPL-2.0-only
"""Are parameters behind a module's path read as a shell would, and is no set of them shown as another one?"""

from __future__ import annotations

import itertools
import re

import pytest

from orchestrator.catalog.probes import in_name, parse_parameters, split_path, with_path, written
from orchestrator.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "path", "text"),
    [
        ("./mine.c", "./mine.c", ""),
        ("./mine.c size=64", "./mine.c", "size=64"),
        ("./mine.c.j2  size=64 mode=a/b.c", "./mine.c.j2", "size=64 mode=a/b.c"),
        ("./mine.ko 'label=two words'", "./mine.ko", "'label=two words'"),
        ("./mine.c size", "./mine.c", "size"),
        ("./mine.bpf.c size=64", "./mine.bpf.c", "size=64"),
        ("./old.c files/mine.c", "./old.c files/mine.c", ""),
        ("./old.c files/mine.c size=64", "./old.c files/mine.c", "size=64"),
        ("./my files/mine.ko", "./my files/mine.ko", ""),
        ("./linux/build", "./linux/build", ""),
    ],
)
def test_parameters_stand_behind_a_path(name: str, path: str, text: str) -> None:
    assert split_path(name) == (path, text)
    assert split_path(with_path(path, text)) == (path, text)


def test_parameters_keep_their_order_and_have_one_spelling() -> None:
    given = parse_parameters("size=64  'label=two words' empty= option=a=b")
    assert list(given.items()) == [("size", "64"), ("label", "two words"), ("empty", ""), ("option", "a=b")]
    assert parse_parameters(written(given)) == given
    assert written(parse_parameters("label='two words'")) == "'label=two words'"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("size", "found 'size' behind a module's path; a parameter is NAME=VALUE"),
        ("size=1 size=2", "found parameter 'size' twice; give it once"),
        ("=1", "found ''; a module parameter's name has letters, digits and '_'"),
        ("my.size=1", "found 'my.size'; a module parameter's name"),
        ("label='one", "no closing quotation: quotes are as in a shell"),
        ("label='\"'", "label: found '\"'; a value is one line"),
        ("label=\x07", "a value is one line"),
        (f"label={'x' * 1000}", "found parameters of 1006 characters; at most 1000 are allowed"),
    ],
)
def test_what_is_no_parameter_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(complaint)):
        parse_parameters(text)


def test_no_two_sets_have_one_name() -> None:
    assert in_name({}) == ""
    assert in_name({"size": "64", "mode": "fast"}) == ".size-64.mode-fast"
    values = ["1", "-1", "_1", "+1", "1.b-2", "", "ä", "ö", "two words", "two_words", "x" * 80, "x" * 81]
    sets = [{"a": value} for value in values] + [{"a": one, "b": "2"} for one in values]
    names = [in_name(one) for one in sets]
    assert all(one != other for one, other in itertools.combinations(names, 2))
    assert all(re.fullmatch(r"[A-Za-z0-9._-]{1,80}", name) for name in names)
