# SPDX-License-Identifier: GPL-2.0-only
"""Who has a fleet's key talks to its members; who has another, or none, does not."""

from __future__ import annotations

import os
import socket
import ssl
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from file_permissions import reading_by_modes

from orchestrator.errors import HostError, UsageError

pytest.importorskip("cryptography", reason="the extra fleet is not installed")
pytest.importorskip("distributed", reason="the extra fleet is not installed")

from orchestrator.fleet.key import FILE_NAME, made_key, read_key, security_of, usual_key_file

LIMIT = 600.0
"""Seconds after which a handshake that hangs fails."""


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Two fleets' keys."""
    folder = tmp_path_factory.mktemp("keys")
    one, other = (read_key(made_key(folder / name)) for name in ("one", "other"))
    return one, other


def certificate_of(key: str) -> str:
    return key.partition("-----BEGIN PRIVATE KEY")[0]


def written(file: Path, text: str) -> Path:
    file.write_text(text)
    return file


def listener_of(key: str) -> ssl.SSLContext:
    return _context(security_of(key).get_listen_args("scheduler"))


def caller_of(key: str) -> ssl.SSLContext:
    return _context(security_of(key).get_connection_args("client"))


def _context(arguments: dict[str, Any]) -> ssl.SSLContext:
    assert arguments["require_encryption"]
    context = arguments["ssl_context"]
    assert isinstance(context, ssl.SSLContext)
    return context


def conversation(listener: ssl.SSLContext, caller: ssl.SSLContext) -> tuple[str, str]:
    """What each side heard of the other behind a handshake: its word, or the name of the error."""
    here, there = socket.socketpair()

    def talk(end: socket.socket, context: ssl.SSLContext, is_listener: bool) -> str:
        end.settimeout(LIMIT)
        with end:
            try:
                # By IP address, as Dask connects: a key is not made for a machine's name.
                with context.wrap_socket(end, server_side=is_listener) as spoken:
                    spoken.sendall(b"listener" if is_listener else b"caller")
                    return spoken.recv(100).decode() or "nothing"
            except (ssl.SSLError, ConnectionError) as error:
                return type(error).__name__

    with ThreadPoolExecutor(2) as pool:
        heard = [pool.submit(talk, here, listener, True), pool.submit(talk, there, caller, False)]
        return heard[0].result(), heard[1].result()


def test_client_with_the_same_key_is_answered(keys: tuple[str, str]) -> None:
    key, _ = keys
    assert conversation(listener_of(key), caller_of(key)) == ("caller", "listener")


def test_client_with_another_key_is_refused(keys: tuple[str, str]) -> None:
    for listener, caller in (keys, keys[::-1]):
        at_listener, at_caller = conversation(listener_of(listener), caller_of(caller))
        assert at_listener != "caller"
        assert at_caller != "listener"


def test_a_listener_refuses_who_has_no_certificate(keys: tuple[str, str]) -> None:
    key, _ = keys
    trusting = ssl.create_default_context(cadata=certificate_of(key))
    trusting.check_hostname = False
    at_listener, at_caller = conversation(listener_of(key), trusting)
    assert at_listener == "SSLError"
    assert at_caller != "listener"


def test_a_caller_refuses_a_listener_of_another_authority(keys: tuple[str, str], tmp_path: Path) -> None:
    key, other = keys
    careless = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)  # it takes anyone
    careless.load_cert_chain(written(tmp_path / "pair", other))
    at_listener, at_caller = conversation(careless, caller_of(key))
    assert at_listener != "caller"
    assert at_caller == "SSLCertVerificationError"


def test_older_tls_is_refused(keys: tuple[str, str]) -> None:
    key, _ = keys
    old = caller_of(key)
    old.minimum_version = ssl.TLSVersion.TLSv1_2
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    assert conversation(listener_of(key), old) == ("SSLError", "SSLError")


def test_a_key_with_an_authority_of_its_own_is_good(keys: tuple[str, str]) -> None:
    """Keys had one; here it is the certificate itself."""
    key, _ = keys
    assert conversation(listener_of(certificate_of(key) + key), caller_of(key)) == ("caller", "listener")


def test_a_key_is_its_owners_whatever_the_mask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        file = made_key(tmp_path / "fleet" / FILE_NAME)
    finally:
        os.umask(before)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_a_key_is_not_made_twice(tmp_path: Path) -> None:
    file = made_key(tmp_path / FILE_NAME)
    before = file.read_bytes()
    with pytest.raises(UsageError, match="the key exists already") as caught:
        made_key(file)
    assert caught.value.hint.endswith("remove the file first, or name another one: --out FILE")
    assert file.read_bytes() == before


def test_a_link_is_not_followed_to_make_a_key(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="the key exists already"):
        made_key(tmp_path / FILE_NAME)
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("mode", [0o640, 0o620, 0o610, 0o604, 0o602, 0o601, 0o666, 0o444])
def test_a_key_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    file = made_key(tmp_path / FILE_NAME)
    file.chmod(mode)
    with pytest.raises(HostError, match="others than its owner may read") as caught:
        read_key(file)
    assert f"chmod 600 {file}" in (caught.value.hint or "")


def test_without_a_key_it_is_said_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no key of a fleet") as caught:
        read_key(tmp_path / FILE_NAME)
    assert "fleet keys" in (caught.value.hint or "")


def test_a_key_that_cannot_be_read_is_an_error_of_the_host(tmp_path: Path) -> None:
    file = made_key(tmp_path / FILE_NAME)
    file.chmod(0)
    with reading_by_modes(), pytest.raises(HostError, match="cannot be read"):
        read_key(file)
    with pytest.raises(HostError, match="cannot be read"):
        read_key(tmp_path)


@pytest.mark.parametrize("damage", ["empty", "cut", "binary", "long", "certificates"])
def test_a_damaged_key_is_refused(tmp_path: Path, damage: str) -> None:
    file = made_key(tmp_path / FILE_NAME)
    text = file.read_bytes()
    file.write_bytes(
        {
            "empty": b"",
            "cut": text[: len(text) // 2],
            "binary": bytes(range(256)),
            "long": text + b"x" * (64 << 10),
            "certificates": text[: text.index(b"-----BEGIN PRIVATE KEY")],
        }[damage]
    )
    with pytest.raises(UsageError, match="not a key of a fleet"):
        read_key(file)


def test_a_key_with_other_parts_is_refused(keys: tuple[str, str]) -> None:
    one, other = keys
    for text in (one + other, one[one.index("-----END CERTIFICATE") :], "", one.replace("CERTIFICATE", "NOTHING")):
        with pytest.raises(UsageError, match="a certificate and a private key"):
            security_of(text)


def test_the_usual_key_is_beside_the_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCHESTRATOR_LAB", str(tmp_path))
    assert usual_key_file() == tmp_path / "fleet" / FILE_NAME
