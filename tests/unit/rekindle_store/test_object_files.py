"""Stores on servers that speak S3 otherwise than Amazon's, and what the environment says of them.

On a real server: tests/integration/test_object_store.py.
"""

import errno
import ipaddress
import itertools
import os
import re
import ssl
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

sys.path.insert(0, str(Path(__file__).parents[1] / "builders"))
from s3_server import Quirks, S3Server, serving

import rekindle
from rekindle.model.errors import InputError, RunError, SourceAwayError
from rekindle_spark.connectors import file_folders
from rekindle_store import object_files, store_files
from rekindle_store.object_files import ObjectFiles
from rekindle_store.transfers import PIECE_BYTES

PLACES = itertools.count()
UNKNOWN = [(501, "NotImplemented"), (405, "MethodNotAllowed"), (400, "MissingContentMD5")]


@pytest.fixture(name="server")
def _server(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    with serving() as found:
        use(monkeypatch, found.address)
        yield found


def use(patch: pytest.MonkeyPatch, endpoint: str) -> None:
    for name in [name for name in os.environ if name.startswith(("AWS_", "SSL_CERT"))]:
        patch.delenv(name)
    patch.setenv("AWS_ENDPOINT_URL", endpoint)
    patch.setenv("AWS_ACCESS_KEY_ID", "somebody")
    patch.setenv("AWS_SECRET_ACCESS_KEY", "something")


def place() -> str:
    """Another one each time: places are cached."""
    return f"s3://bucket/{next(PLACES)}"


@pytest.mark.parametrize("answer", UNKNOWN)
def test_a_server_without_bulk_delete_gets_a_request_for_each_object(
    server: S3Server, answer: tuple[int, str]
) -> None:
    server.quirks.bulk = answer
    store = ObjectFiles(place())
    store.put({"commits/1.json": b"one", "commits/2.json": b"two"})
    store.remove(["commits/1.json", "commits/2.json", "commits/3.json"])
    assert server.objects == {}
    store.put({"commits/1.json": b"one"})
    store.remove(["commits/1.json"])
    bulk = [at for at, (method, _, _) in enumerate(server.requests) if method == "POST"]
    assert bulk
    assert bulk == [*range(2, 2 + len(bulk))]  # and none after the first answer


@pytest.mark.parametrize("bulk", [None, (501, "NotImplemented")], ids=["at-once", "one-by-one"])
def test_what_is_not_there_keeps_no_other_object_from_being_removed(
    server: S3Server, bulk: tuple[int, str] | None
) -> None:
    server.quirks.bulk, server.quirks.missing = bulk, True
    store = ObjectFiles(place())
    names = [f"commits/{number}.json" for number in range(1, 30)]
    store.put(dict.fromkeys(names[1::2], b"one"))
    store.remove(names)
    assert server.objects == {}
    store.remove(names)


def test_a_large_file_goes_and_comes_in_pieces_with_a_request_for_each(server: S3Server) -> None:
    data, store = os.urandom(2 * PIECE_BYTES + 7), ObjectFiles(place())
    gone: list[int] = []
    store.put({"checkpoints/1/a.state": data, "checkpoints/1/b.state": b"small"}, gone.append)
    assert [*server.objects.values()] == [b"small", data]
    assert sorted(gone) == [5, 7, PIECE_BYTES, PIECE_BYTES]
    assert [method for method, _, _ in server.requests].count("PUT") == 4
    come: list[int] = []
    server.requests.clear()
    assert store.read("checkpoints/1/a.state", come.append) == data
    assert [status for _, _, status in server.requests if status == 206] == [206] * 3
    assert sum(come) == len(data)
    assert store.read("checkpoints/1/b.state", come.append) == b"small"
    assert come[-1] == 5


def test_deletes_that_fail_for_another_reason_are_not_split(server: S3Server) -> None:
    server.quirks.bulk = (403, "AccessDenied")
    with pytest.raises(PermissionError, match="It says AccessDenied"):
        ObjectFiles(place()).remove(["commits/1.json"])
    assert [method for method, _, _ in server.requests] == ["POST"]


def test_a_conditional_put_that_met_another_is_sent_again(server: S3Server) -> None:
    server.quirks.conflicts = 2
    store = ObjectFiles(place())
    store.create("commits/1.json", b"one")
    assert [*server.objects.values()] == [b"one"]
    with pytest.raises(FileExistsError):
        store.create("commits/1.json", b"other")


@pytest.mark.parametrize(
    ("quirks", "error", "says"),
    [
        (Quirks(conditional=(501, "NotImplemented")), InputError, "does not know how to create"),
        (Quirks(conditional=(405, "MethodNotAllowed")), InputError, "It says MethodNotAllowed"),
        (Quirks(conditional=(400, "InvalidArgument")), InputError, "It says InvalidArgument"),
        (Quirks(conditional=(503, "SlowDown")), RunError, "answers with an error .It says Slow"),
        (Quirks(conflicts=100), RunError, "answers with an error .It says Conditional"),
        (Quirks(overwrites=True), InputError, "overwrites what it was told to create only"),
        (Quirks(overwrites=True, bulk=(405, "MethodNotAllowed")), InputError, "overwrites what"),
    ],
)
def test_what_a_server_cannot_do_is_named_and_nothing_is_left(
    server: S3Server, quirks: Quirks, error: type[Exception], says: str
) -> None:
    server.quirks = quirks
    with pytest.raises(error, match=says):
        store_files.check(place())
    assert server.objects == {}


def test_what_others_begin_may_be_created_though_the_first_look_conflicts(
    server: S3Server,
) -> None:
    server.quirks = Quirks(conflicts=1, bulk=(405, "MethodNotAllowed"))
    store_files.check(place())
    assert server.objects == {}


def test_line_breaks_and_blanks_around_values_are_left_out(
    server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {
        "AWS_ENDPOINT_URL": f" {server.address}\n",
        "AWS_ACCESS_KEY_ID": "somebody\r\n",
        "AWS_SECRET_ACCESS_KEY": "something\n",
        "AWS_SESSION_TOKEN": "token ",
        "AWS_REGION": "eu-north-1\n",
    }
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    store_files.check(place())
    assert server.requests


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("AWS_ENDPOINT_URL", "minio:9000", "is no address of a server .'minio:9000'"),
        ("AWS_ENDPOINT_URL", "minio.example.com", "https://HOST:PORT with its scheme"),
        ("AWS_ENDPOINT_URL", "127.0.0.1:9000", "https://HOST:PORT with its scheme"),
        ("AWS_ENDPOINT_URL", "ftp://minio", "is no address of a server"),
        ("AWS_ENDPOINT_URL", "http:// minio", "is no address of a server"),
        ("AWS_ENDPOINT_URL_S3", "minio:9000", "is no address of a server"),
        ("AWS_ENDPOINT", "", "is set and empty"),
        ("AWS_REGION", "\n", "is set and empty"),
        ("AWS_REGION", "eu north", "has a blank"),
        ("AWS_ACCESS_KEY_ID", "some\nbody", "has a blank or a character that no header"),
        ("AWS_SESSION_TOKEN", "töken", "has a blank or a character that no header may have"),
        ("AWS_SECRET_ACCESS_KEY", "some\nthing", "has a line break"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(
    server: S3Server, monkeypatch: pytest.MonkeyPatch, name: str, value: str, says: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(InputError, match=f"{name}: .*{says}"):
        store_files.check(place())
    assert server.requests == []


def test_no_message_shows_a_secret() -> None:
    for name in ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ACCESS_KEY_ID"):
        with pytest.raises(InputError) as refused:
            object_files.options({name: "hid\nden"})
        assert "hid" not in str(refused.value)


def test_a_secret_may_have_blanks_within() -> None:
    assert object_files.options({"AWS_SECRET_ACCESS_KEY": "pass word"}) == {}


@pytest.mark.parametrize("name", ["AWS_CA_BUNDLE", "SSL_CERT_FILE"])
def test_a_private_authority_is_trusted_where_the_environment_names_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    authority = made_certificate(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "server.pem", tmp_path / "key.pem")
    with serving(tls=tls) as server:
        use(monkeypatch, server.address)
        with pytest.raises(InputError, match=r"is not trusted .UnknownIssuer.*AWS_CA_BUNDLE"):
            store_files.check(place())
        with pytest.raises(InputError, match=r"is not trusted .UnknownIssuer.*AWS_CA_BUNDLE"):
            rekindle.read(place(), "hourly")
        monkeypatch.setenv(name, f"{authority}\n")
        store_files.check(place())
        assert server.objects == {}
        assert server.requests


@pytest.mark.parametrize("name", ["AWS_CA_BUNDLE", "SSL_CERT_FILE"])
def test_a_file_of_authorities_that_will_not_do_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=f"{name}: names .*absent.pem, which cannot be read"):
        object_files.authorities({name: str(tmp_path / "absent.pem")})
    (tmp_path / "key.pem").write_text("-----BEGIN PRIVATE KEY-----\n")
    with pytest.raises(InputError, match=f"{name}: names .*key.pem, which has no certificate"):
        object_files.authorities({name: str(tmp_path / "key.pem")})
    assert object_files.authorities({name: " "}) is None


@pytest.mark.usefixtures("server")
def test_a_panic_of_the_client_is_an_answer_like_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUST_BACKTRACE", "0")
    monkeypatch.setattr(object_files, "options", lambda: {"aws_endpoint_url": "no-scheme:1"})
    with pytest.raises(RunError, match="the client panicked"):
        store_files.check(place())


def made_certificate(folder: Path) -> Path:
    """A private authority's certificate; beside it that of a server here, and its key."""
    key, servers = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    authority = certificate("private authority", key).add_extension(
        x509.BasicConstraints(ca=True, path_length=None), critical=True
    )
    server = certificate("server", servers).add_extension(
        x509.SubjectAlternativeName([address]), critical=False
    )
    path = folder / "authority.pem"
    path.write_bytes(pem(authority.sign(key, hashes.SHA256())))
    (folder / "server.pem").write_bytes(pem(server.sign(key, hashes.SHA256())))
    (folder / "key.pem").write_bytes(
        servers.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return path


def certificate(name: str, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    """One of the private authority, to be signed."""
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "private authority")]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
    )


def pem(signed: x509.Certificate) -> bytes:
    return signed.public_bytes(serialization.Encoding.PEM)


@pytest.mark.parametrize("key", ["a//b", "a/../b", "a/\tb"], ids=["empty", "above", "tab"])
def test_an_object_with_a_name_that_is_no_path_is_told_by_it(server: S3Server, key: str) -> None:
    store = ObjectFiles(place())
    prefix = store.place.removeprefix("s3://bucket/")
    server.objects[f"{prefix}/{key}"] = b"x"
    with pytest.raises(OSError, match=re.escape(prefix)) as caught:
        list(store.objects())
    assert caught.value.errno == errno.EILSEQ
    folder = file_folders.at(store.place)
    with pytest.raises(
        RunError, match=r"have one with such a name .*; rename or remove it"
    ) as told:
        list(folder.found(recursive=True))
    assert not isinstance(told.value, SourceAwayError)
