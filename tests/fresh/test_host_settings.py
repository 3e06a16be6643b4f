# SPDX-License-Identifier: GPL-2.0-only
"""Are the settings of the host's apt and pip read, and passed on to a root?"""

from __future__ import annotations

from pathlib import Path

import pytest
from from_host import FromHost
from host_apt import Setting, Suite, acquire_settings, look
from host_pip import read_settings


def test_settings_of_apt_are_those_beyond_its_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finder = tmp_path / "finder"
    finder.write_text('#!/bin/sh\nprintf "http://found.invalid:3142/%s\\n" "${1##*/}"\n')
    finder.chmod(0o755)
    settings = tmp_path / "settings.conf"
    lines = [
        'Acquire::http::Proxy "http://proxy.invalid:3128";',
        f'Acquire::https::Proxy-Auto-Detect "{finder}";',
        'Acquire::Languages { "none"; };',
        'Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";',
        'APT::Install-Suggests "true";',
    ]
    settings.write_text("\n".join(lines))
    monkeypatch.setenv("APT_CONFIG", str(settings))
    found = acquire_settings("http://mirror.invalid/debian")
    assert Setting("Acquire::http::Proxy", "http://proxy.invalid:3128") in found
    assert Setting("Acquire::https::Proxy", "http://found.invalid:3142/debian") in found
    assert Setting("Acquire::Languages::", "none") in found
    assert all(str(setting).startswith("Acquire::") for setting in found)
    assert not [setting for setting in found if "IndexTargets" in setting.name or "Auto" in setting.name]
    # apt's own defaults are in every root anyway.
    assert not [setting for setting in found if setting.name == "Acquire::cdrom::mount"]


def test_a_root_gets_certificates_for_a_mirror_reached_by_https() -> None:
    named = [setting.name.lower() for setting in acquire_settings("https://mirror.invalid/debian")]
    bundle = Path("/etc/ssl/certs/ca-certificates.crt")
    assert [name for name in named if name.startswith("acquire::https::ca")] or not bundle.exists()


@pytest.mark.parametrize(
    ("line", "day", "is_expired"),
    [
        ("", "", False),
        ("Valid-Until: Fri, 06 Nov 2020 08:08:01 UTC\n", "Fri, 06 Nov 2020 08:08:01 UTC", True),
        ("Valid-Until: Fri, 06 Nov 2199 08:08:01 UTC\n", "Fri, 06 Nov 2199 08:08:01 UTC", False),
    ],
)
def test_a_release_file_that_was_valid_until_a_day_in_the_past(
    tmp_path: Path, line: str, day: str, is_expired: bool
) -> None:
    place = tmp_path / "dists" / "sid"
    place.mkdir(parents=True)
    (place / "InRelease").write_text(f"Suite: unstable\nCodename: sid\n{line}SHA256:\n")
    suite = look(tmp_path.as_uri(), "sid")
    assert isinstance(suite, Suite)
    assert (suite.valid_until, suite.is_expired) == (day, is_expired)


def test_settings_of_pip_are_those_of_the_way_to_its_packages() -> None:
    listed = [
        "global.index-url='https://index.invalid/simple'",
        "global.extra-index-url='\\nfile:///a\\nfile:///b'",
        "global.user='true'",
        "install.timeout='20'",
        ":env:.index-url='https://mine.invalid/a=b'",
        ":env:.cache-dir='/somewhere'",
    ]
    assert read_settings("\n".join(listed)) == {
        "index-url": "https://mine.invalid/a=b",
        "extra-index-url": "file:///a file:///b",
        "timeout": "20",
    }


def test_what_settings_name_is_seen_inside(tmp_path: Path) -> None:
    (tmp_path / "index" / "simple").mkdir(parents=True)
    (tmp_path / "authorities.pem").touch()
    from_host = FromHost()
    assert from_host.translate(f"{tmp_path}/authorities.pem") == f"/mnt/host{tmp_path}/authorities.pem"
    value = f"file://{tmp_path}/index/simple http://a.invalid/x {tmp_path}/missing true"
    expected = f"file:///mnt/host{tmp_path}/index/simple http://a.invalid/x {tmp_path}/missing true"
    assert from_host.translate(value) == expected
    assert from_host.seen == {
        tmp_path / "authorities.pem": f"/mnt/host{tmp_path}/authorities.pem",
        # Its pages may name files beside it.
        tmp_path / "index": f"/mnt/host{tmp_path}/index",
    }
