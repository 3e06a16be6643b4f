# SPDX-License-Identifier: GPL-2.0-only
"""Are parameters behind a module's path read as a shell would, and is no set of them shown as another one?"""

from __future__ import annotations

import itertools
import re

import pytest
from pydantic import ValidationError

from orchestrator.catalog.probes import (
    KernelChange,
    KernelFeature,
    in_name,
    parse_parameters,
    split_path,
    with_path,
    written,
)
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
        ("./my-module/ size=64", "./my-module/", "size=64"),
        ("./my-module:other size=64 mode=fast", "./my-module:other", "size=64 mode=fast"),
        ("./my module 'label=two words'", "./my module", "'label=two words'"),
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
        ("size", "found 'size' after a module's path; a parameter is NAME=VALUE"),
        ("size=1 size=2", "found parameter 'size' twice; give it once"),
        ("=1", "found ''; a module parameter's name has letters, digits and '_'"),
        ("my.size=1", "found 'my.size'; a module parameter's name"),
        ("label='one", "no closing quotation: quotes are as in a shell"),
        ("label='\"'", "label: found '\"'; a value is one line"),
        ("label=\x07", "a value is one line"),
        (f"label={'x' * 1000}", "found parameters of 1006 characters; at most 1000 are allowed"),
    ],
)
def test_unknown_parameter_is_refused(text: str, complaint: str) -> None:
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


# Does a kernel's release tell what the kernel lacks, and are wrong facts refused?

COMMIT = "fec56f5890d9"


def change(release: str) -> KernelChange:
    return KernelChange(release=release, commit=COMMIT)


@pytest.mark.parametrize(
    ("release", "kernel", "is_there"),
    [
        ("6.6", "6.12.117-lab", True),
        ("6.6", "6.1.192-lab", False),
        ("6.6", "6.6", True),
        ("6.6", "6.6.0-rc1+", True),
        ("6.10", "6.9.12", False),
        ("6.10", "6.12.86+deb12-amd64", True),
        ("5.18", "6.1.0-50-686", True),
        ("6.1.28", "6.1.192-lab", True),
        ("6.1.28", "6.1.27", False),
        ("6.1.28", "6.2-rc1", True),
        ("2.6.34", "3.2.0", True),
        ("6.6", "next-20260101", True),
    ],
)
def test_a_change_is_in_a_release(release: str, kernel: str, is_there: bool) -> None:
    assert change(release).is_in(kernel) is is_there


def test_what_a_release_lacks_is_said_with_the_change() -> None:
    both = KernelFeature(since=change("5.5"), until=change("6.10"))
    assert both.lacking_in("6.1.192-lab", "x86_64") is None
    assert (
        both.lacking_in("5.4.0-x", "x86_64") == "Linux has this since 5.5 (commit fec56f5890d9); the kernel is 5.4.0-x"
    )
    assert (
        both.lacking_in("6.12.117-lab", "x86_64")
        == "Linux no longer has this, since 6.10 (commit fec56f5890d9); the kernel is 6.12.117-lab"
    )
    assert KernelFeature().lacking_in("2.4.37", "x86_64") is None


@pytest.mark.parametrize(
    "fields",
    [
        {"release": 6.1, "commit": COMMIT},
        {"release": "6", "commit": COMMIT},
        {"release": "v6.1", "commit": COMMIT},
        {"release": "6.1-rc1", "commit": COMMIT},
        {"release": "6.1", "commit": "fec56f5"},
        {"release": "6.1", "commit": 123456789012},
        {"release": "6.1"},
    ],
)
def test_a_wrong_fact_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        KernelChange.model_validate(fields)


def test_a_feature_may_end_on_one_architecture_alone() -> None:
    ended = KernelFeature(until=KernelChange(release="6.14", commit="4346ba160409", arch="i386"))
    assert ended.lacking_in("7.3.4", "x86_64") is ended.lacking_in("6.13.12", "i386") is None
    words = "Linux no longer has this on i386, since 6.14 (commit 4346ba160409); the kernel is 7.3.4"
    assert ended.lacking_in("7.3.4", "i386") == words
