# SPDX-License-Identifier: GPL-2.0-only
"""Which mirror has the guests' release, by what a host's own apt sources say?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.artifacts.debian_mirror import DebianMirror, debian_mirror, mirror_in
from orchestrator.catalog.debian import DebianRelease, debian
from orchestrator.errors import HostError, LabError, UsageError

A, B = "http://a.invalid/debian/", "https://b.invalid/mirrors/debian"
SECURITY = "http://s.invalid/debian-security/"


@pytest.mark.parametrize(
    ("rows", "archive", "security"),
    [
        (f"{A} bookworm\n{A} bookworm-updates\n{SECURITY} bookworm-security\n", A, SECURITY),
        (f"{A} trixie\n{SECURITY} trixie-security", A, SECURITY),
        (f"{A} trixie\n", A, "http://a.invalid/debian-security"),
        (f"{B} sid\n", B, "https://b.invalid/mirrors/debian-security"),
        (f"{B} stable/\n{SECURITY} stable/updates\n", B, SECURITY),
        # The release itself before others, whatever comes first.
        (f"{A} forky\n{B} bookworm\n", B, "https://b.invalid/mirrors/debian-security"),
        # Somebody else's security archive, and a mirror that is laid out differently.
        ("http://c.invalid/deb12 bookworm\nhttp://c.invalid/ubuntu noble-security\n", "http://c.invalid/deb12", None),
        (f"cdrom:[Debian 12.0 - amd64]/ bookworm\n{A} trixie\n", A, "http://a.invalid/debian-security"),
    ],
)
def test_the_mirror_of_a_host(rows: str, archive: str, security: str | None) -> None:
    assert mirror_in(rows) == DebianMirror(archive, security)


@pytest.mark.parametrize("rows", ["", "\n", "http://a.invalid/ubuntu noble\n", f"{SECURITY} trixie-security\n", "x"])
def test_a_host_without_one(rows: str) -> None:
    with pytest.raises(HostError, match="apt sources name no mirror of Debian") as caught:
        mirror_in(rows)
    assert "ORCHESTRATOR_DEBIAN_MIRROR=http://HOST/debian" in caught.value.hint


@given(st.text())
def test_any_rows_are_survived(rows: str) -> None:
    try:
        found = mirror_in(rows)
    except LabError:
        return
    assert found.archive in rows


def test_the_users_own_mirror_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCHESTRATOR_DEBIAN_MIRROR", B)
    assert debian_mirror() == DebianMirror(B, "https://b.invalid/mirrors/debian-security")


@pytest.mark.parametrize("value", ["mirror.invalid", "http://a.invalid/x y", "deb http://a.invalid", "http:\n"])
def test_what_is_no_address_reaches_no_source_list(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("ORCHESTRATOR_DEBIAN_MIRROR", value)
    with pytest.raises(UsageError, match="ORCHESTRATOR_DEBIAN_MIRROR"):
        debian_mirror()


def test_sources_ask_for_debians_own_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    release = debian()
    lines = DebianMirror(A, None).sources().splitlines()
    assert [line.split()[-2] for line in lines] == release.suites
    assert DebianMirror(A, SECURITY).sources().splitlines()[:-1] == lines
    assert DebianMirror(A, SECURITY).sources().splitlines()[-1].endswith(f"{SECURITY} bookworm-security main")
    assert DebianMirror(A, SECURITY).main_suite() == lines[0] + "\n"
    monkeypatch.setattr("orchestrator.artifacts.debian_mirror.debian", lambda: release_with("/", release))
    assert DebianMirror(A, None).main_suite() == f"deb [signed-by=/] {A} bookworm main\n"
    monkeypatch.setattr("orchestrator.artifacts.debian_mirror.debian", lambda: release_with("/nowhere", release))
    assert DebianMirror(A, None).main_suite() == f"deb {A} bookworm main\n"


def release_with(keyring: str, release: DebianRelease) -> DebianRelease:
    return release.model_copy(update={"keyrings": [keyring]})
