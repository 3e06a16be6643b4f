# SPDX-License-Identifier: GPL-2.0-only
"""Does a kernel's release tell what the kernel lacks, and are wrong facts refused?"""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from orchestrator.catalog.probes import Change, KernelFeature

COMMIT = "fec56f5890d9"


def change(release: str) -> Change:
    return Change(release=release, commit=COMMIT)


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
        both.lacking_in("5.4.0-x", "x86_64")
        == "Linux has this since 5.5 (commit fec56f5890d9), and the kernel is 5.4.0-x"
    )
    assert (
        both.lacking_in("6.12.117-lab", "x86_64")
        == "Linux has this no more since 6.10 (commit fec56f5890d9), and the kernel is 6.12.117-lab"
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
        Change.model_validate(fields)


def test_a_feature_may_end_on_one_architecture_alone() -> None:
    ended = KernelFeature(until=Change(release="6.14", commit="4346ba160409", arch="i386"))
    assert ended.lacking_in("7.3.4", "x86_64") is ended.lacking_in("6.13.12", "i386") is None
    words = "Linux has this no more on i386 since 6.14 (commit 4346ba160409), and the kernel is 7.3.4"
    assert ended.lacking_in("7.3.4", "i386") == words
