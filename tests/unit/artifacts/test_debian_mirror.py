# SPDX-License-Identifier: GPL-2.0-only
"""Which mirror has the guests' release, by the host's own apt sources?"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.artifacts import debian as module
from orchestrator.artifacts.debian import DebianMirror, archive_keyring, debian_mirror, mirror_in, without_passwords
from orchestrator.catalog.images import debian
from orchestrator.errors import HostError, LabError, UsageError

A, B = "http://a.invalid/debian/", "https://b.invalid/mirrors/debian"
SECURITY = "http://s.invalid/debian-security/"
BESIDE_A, BESIDE_B = "http://a.invalid/debian-security", "https://b.invalid/mirrors/debian-security"
VENDOR, CONTAINERS = "https://v.invalid/repos/tool", "https://c.invalid/linux/debian"


@pytest.mark.parametrize(
    ("rows", "archive", "security"),
    [
        (f"{A} bookworm main\n{A} bookworm-updates main\n{SECURITY} bookworm-security main\n", A, SECURITY),
        (f"{A} trixie main\n{SECURITY} trixie-security main", A, SECURITY),
        (f"{A} trixie main\n", A, BESIDE_A),
        (f"{B} sid main\n", B, BESIDE_B),
        (f"{B} stable/ main\n{SECURITY} stable/updates main\n", B, SECURITY),
        # The release itself before others, whatever comes first.
        (f"{A} forky main\n{B} bookworm main\n", B, BESIDE_B),
        # Somebody else's security archive, and a mirror that is laid out differently.
        (
            "http://x.invalid/deb12 bookworm main\nhttp://x.invalid/u noble-security main\n",
            "http://x.invalid/deb12",
            None,
        ),
        (f"cdrom:[Debian 12.0 - amd64]/ bookworm main\n{A} trixie main\n", A, BESIDE_A),
        # Vendors have suites of the same names: before Debian's in the list, of an older release, under an alias.
        (f"{VENDOR} bookworm main\n{A} bookworm main\n{A} bookworm-updates main\n", A, BESIDE_A),
        (f"{VENDOR} bookworm main\n{A} bookworm main\n", A, BESIDE_A),
        (f"{A} trixie main\n{A} trixie-updates main\n{CONTAINERS} bookworm main\n", A, BESIDE_A),
        (f"{VENDOR} stable main\n{A} trixie main\n{A} trixie-updates main\n", A, BESIDE_A),
        (f"{VENDOR} bookworm-security main\n{SECURITY} bookworm-security main\n{A} bookworm main", A, SECURITY),
    ],
)
def test_the_mirror_of_a_host(rows: str, archive: str, security: str | None) -> None:
    assert mirror_in(rows) == DebianMirror(archive, security)


@pytest.mark.parametrize(
    "rows",
    [
        "",
        "\n",
        "http://a.invalid/ubuntu noble main\n",
        f"{SECURITY} trixie-security main\n",
        f"{CONTAINERS} bookworm stable\n",
        "x",
    ],
)
def test_a_host_without_one(rows: str) -> None:
    with pytest.raises(HostError, match="apt sources name no mirror of Debian") as caught:
        mirror_in(rows)
    assert "ORCHESTRATOR_DEBIAN_MIRROR=http://HOST/debian" in caught.value.hint


@given(st.text())
def test_any_rows_name_a_mirror_or_are_refused(rows: str) -> None:
    try:
        found = mirror_in(rows)
    except LabError:
        return
    assert found.archive in rows


def test_the_users_own_mirror_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCHESTRATOR_DEBIAN_MIRROR", B)
    assert debian_mirror() == DebianMirror(B, BESIDE_B)


@pytest.mark.parametrize("value", ["mirror.invalid", "http://a.invalid/x y", "deb http://a.invalid", "http:\n"])
def test_what_is_no_address_reaches_no_source_list(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("ORCHESTRATOR_DEBIAN_MIRROR", value)
    with pytest.raises(UsageError, match="ORCHESTRATOR_DEBIAN_MIRROR"):
        debian_mirror()


def test_a_password_is_for_apt_alone() -> None:
    mirror = DebianMirror("https://me:secret@a.invalid/debian", None)
    assert mirror.shown == "https://a.invalid/debian"
    printed = "E: Failed to fetch http://me:p%20w@a.invalid/d  400\nmail root@a.invalid http://a.invalid/x@y"
    assert (
        without_passwords(printed)
        == "E: Failed to fetch http://a.invalid/d  400\nmail root@a.invalid http://a.invalid/x@y"
    )
    assert DebianMirror("mirror+file:/etc/apt/mirrors/debian.list", None).shown.endswith("/debian.list")


def test_every_suite_asks_for_debians_own_signature(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    keyring = tmp_path / "keyring.gpg"
    release = debian().model_copy(update={"keyrings": [str(tmp_path / "none.gpg"), str(keyring)]})
    monkeypatch.setattr(module, "debian", lambda: release)
    with pytest.raises(HostError, match="keys of Debian's archive") as caught:
        DebianMirror(A, None).sources(debian())
    assert "debian-archive-keyring" in caught.value.hint
    keyring.touch()
    assert archive_keyring() == keyring
    lines = DebianMirror(A, SECURITY).sources(debian())
    assert lines == {
        **{suite: f"deb [signed-by={keyring}] {A} {suite} main\n" for suite in ("bookworm", "bookworm-updates")},
        "bookworm-security": f"deb [signed-by={keyring}] {SECURITY} bookworm-security main\n",
    }
    assert "bookworm-security" not in DebianMirror(A, None).sources(debian())
