"""Whom a connection to the store trusts, and what is said of a server that it does not."""

import logging
from datetime import timedelta
from pathlib import Path

import pytest
from tls_servers import HOST, make_certificate, tls_files, tls_server

from rekindle.model.errors import InputError
from rekindle_operator.webhook.certificate_rotation import Issued
from rekindle_zookeeper import Encryption, open_socket, speaks_tls

DAY = timedelta(days=1)
SECONDS = 1.5
GOOD = make_certificate()
EXPIRED = make_certificate(starts_in=-100 * DAY)


def trusting(*issued: Issued) -> Encryption:
    return Encryption(lambda: b"".join(item.authority for item in issued).decode(), "CA file ca")


def test_a_server_with_a_certificate_of_the_authority_is_spoken_to(tmp_path: Path) -> None:
    files = tls_files(tmp_path, GOOD)
    encryption = Encryption.of(files.authority)
    with (
        tls_server(files, lambda client: client.sendall(b"imok")) as address,
        open_socket(address, encryption, SECONDS) as client,
    ):
        assert client.recv(4) == b"imok"
    assert encryption is not None
    assert encryption.trouble is None


@pytest.mark.parametrize(
    ("trusted", "presented", "what", "remedy"),
    [
        pytest.param(
            make_certificate(),
            GOOD,
            "is of no authority in CA file ca",
            "give the authority that has signed",
            id="another authority",
        ),
        pytest.param(EXPIRED, EXPIRED, "has expired", "renew it", id="expired"),
        pytest.param(
            late := make_certificate(starts_in=2 * DAY),
            late,
            "is not valid yet",
            "see that the clocks",
            id="not valid yet",
        ),
        pytest.param(
            other := make_certificate("zookeeper.example.com"),
            other,
            "is for another name",
            "call the servers by the names in their certificate",
            id="another name",
        ),
        pytest.param(GOOD, None, "ends the TLS handshake", "name the port", id="no TLS"),
    ],
)
def test_a_server_that_cannot_be_trusted_is_named_with_a_remedy(
    trusted: Issued,
    presented: Issued | None,
    what: str,
    remedy: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    files = None if presented is None else tls_files(tmp_path, presented)
    encryption = trusting(trusted)
    with tls_server(files) as address, caplog.at_level(logging.WARNING):
        for _ in range(2):
            with pytest.raises(ConnectionError):
                open_socket(address, encryption, SECONDS)
    trouble = encryption.trouble
    assert trouble is not None
    assert f"{HOST}:{address[1]}" in trouble.what
    assert what in trouble.what
    assert trouble.remedy.startswith(remedy)
    assert len(caplog.records) == 1, "it is said once"


def test_renewed_authorities_count_from_the_next_connection_on(tmp_path: Path) -> None:
    files, renewed = tls_files(tmp_path, GOOD), make_certificate()
    encryption = Encryption.of(files.authority)
    assert encryption is not None
    with tls_server(files) as address:
        open_socket(address, encryption, SECONDS).close()
        files.server.write_bytes(renewed.pair.key + renewed.pair.certificate)
        with pytest.raises(ConnectionError):
            open_socket(address, encryption, SECONDS)
        files.authority.write_bytes(GOOD.authority + renewed.authority)
        open_socket(address, encryption, SECONDS).close()
        assert encryption.trouble is None


def test_a_file_that_is_gone_for_a_while_is_trouble_and_no_end(tmp_path: Path) -> None:
    files = tls_files(tmp_path)
    encryption = Encryption.of(files.authority)
    assert encryption is not None
    kept = files.authority.rename(tmp_path / "kept")
    with tls_server(files) as address:
        with pytest.raises(ConnectionError):
            open_socket(address, encryption, SECONDS)
        assert encryption.trouble is not None
        assert "cannot be read" in encryption.trouble.what
        kept.rename(files.authority)
        open_socket(address, encryption, SECONDS).close()


def test_a_server_that_is_away_is_not_one_that_cannot_be_trusted(tmp_path: Path) -> None:
    encryption = trusting(make_certificate())
    with tls_server(tls_files(tmp_path)) as address, pytest.raises(ConnectionError):
        open_socket(address, encryption, SECONDS)
    assert encryption.trouble is not None
    with pytest.raises(ConnectionError):
        open_socket(address, encryption, SECONDS)
    assert encryption.trouble is None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read (No such file or directory)"),
        (b"", "holds no certificate that can be read"),
        (b"\xff\xfe", "holds no certificate that can be read"),
        (b"-----BEGIN CERTIFICATE-----\nnone\n", "holds no certificate that can be read"),
        (GOOD.pair.key, "holds no certificate that can be read"),
        (EXPIRED.authority, "holds only certificates that have expired"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_before_anything_starts(
    content: bytes | None, message: str, tmp_path: Path
) -> None:
    file = tmp_path / "ca.crt"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(InputError) as caught:
        Encryption.of(file)
    assert f"CA file {file}: {message}; give " in str(caught.value)


def test_it_is_told_whether_a_server_speaks_tls(tmp_path: Path) -> None:
    with tls_server(tls_files(tmp_path)) as address:
        assert speaks_tls(address, SECONDS)
    with tls_server(None) as address:
        assert not speaks_tls(address, SECONDS)
