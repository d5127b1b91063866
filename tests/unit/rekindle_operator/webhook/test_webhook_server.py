"""The webhook over HTTPS: what it answers, and certificates that change while it serves."""

import http.client
import json
import os
import socket
import ssl
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest
from injection_world import Informed, driver, knowledge, review
from prometheus_client import CollectorRegistry

from rekindle.model.errors import InputError
from rekindle_operator.webhook import certificate_rotation, webhook_server
from rekindle_operator.webhook.certificate_rotation import Issued, Pair
from rekindle_operator.webhook.webhook_main import Folder
from rekindle_operator.webhook.webhook_server import WebhookServer, make_counter

HOST = "127.0.0.1"
POLL_SECONDS = 0.02


def issue() -> Issued:
    return certificate_rotation.issue((HOST,), datetime.now(UTC))


class Webhook:
    """A server with a certificate that can be changed, and its figures."""

    def __init__(self, certificates: Callable[[], Pair | None] | None = None) -> None:
        self.issued = issue()
        self.is_issued = True
        self.registry = CollectorRegistry()
        self.told: list[str] = []
        self.server = WebhookServer(
            Informed(knowledge()),
            certificates or self.pair,
            make_counter(self.registry),
            self.tell,
            host=HOST,
            port=0,
            poll_seconds=POLL_SECONDS,
        )

    def pair(self) -> Pair | None:
        return self.issued.pair if self.is_issued else None

    def tell(self, word: str, **fields: str) -> None:
        self.told.append(word)
        assert all(fields.values())

    def count(self, role: str, outcome: str) -> float:
        labels = {"role": role, "outcome": outcome}
        found = self.registry.get_sample_value("rekindle_operator_admissions_total", labels)
        return found or 0.0

    def connect(self, authority: bytes | None = None) -> http.client.HTTPSConnection:
        trusted = (authority or self.issued.authority).decode()
        context = ssl.create_default_context(cadata=trusted)
        return http.client.HTTPSConnection(HOST, self.server.port, timeout=30, context=context)

    def ask(self, body: bytes, path: str = "/inject", method: str = "POST") -> tuple[int, bytes]:
        connection = self.connect()
        try:
            connection.request(method, path, body)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()


@pytest.fixture
def webhook() -> Iterator[Webhook]:
    made = Webhook()
    made.server.start()
    try:
        yield made
    finally:
        made.server.close()


def wait_until(condition: Callable[[], bool]) -> None:
    limit = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < limit
        time.sleep(POLL_SECONDS)


def succeeds(call: Callable[[], object]) -> bool:
    try:
        call()
    except OSError:
        return False
    return True


def test_a_review_is_answered_and_counted(webhook: Webhook) -> None:
    status, body = webhook.ask(review(driver()))
    assert status == 200
    assert json.loads(body)["response"]["patchType"] == "JSONPatch"
    assert webhook.count("driver", "injected") == 1
    webhook.ask(review(driver(), namespace="elsewhere"))
    assert webhook.count("driver", "refused") == 1


def test_a_fault_of_ours_is_in_the_log(webhook: Webhook) -> None:
    webhook.server._outlook = None  # type: ignore[assignment]
    status, body = webhook.ask(review(driver()))
    assert (status, json.loads(body)["response"]["allowed"]) == (200, True)
    assert webhook.told[-1] == "injection-failed"
    assert webhook.count("other", "failed") == 1


def test_what_is_no_review_gets_400_and_a_sentence(webhook: Webhook) -> None:
    for body in (b"", b"{", b"[]"):
        status, text = webhook.ask(body)
        assert status == 400
        assert text.startswith(b"the body: is no AdmissionReview: ")
    assert webhook.count("other", "malformed") == 3


def test_other_paths_and_methods_and_endless_bodies_are_refused(webhook: Webhook) -> None:
    assert webhook.ask(b"{}", path="/other")[0] == 404
    assert webhook.ask(b"", method="GET")[0] == 405
    assert webhook.ask(b" " * (9 * 2**20))[0] == 413
    assert webhook.ask(review(driver()))[0] == 200


def test_a_body_that_is_compressed_is_not_unpacked(webhook: Webhook) -> None:
    """A few bytes may become as many as fit into memory."""
    packed = zlib.compress(review(driver()))
    connection = webhook.connect()
    connection.request("POST", "/inject", packed, {"Content-Encoding": "deflate"})
    answer = connection.getresponse()
    assert answer.status == 400
    assert b"is no AdmissionReview" in answer.read()
    connection.close()


def test_a_new_certificate_is_presented_without_a_restart(webhook: Webhook) -> None:
    before = webhook.issued.authority
    kept = webhook.connect()
    kept.connect()
    webhook.issued = issue()
    wait_until(lambda: succeeds(webhook.connect().connect))
    with pytest.raises(ssl.SSLCertVerificationError):
        webhook.connect(before).connect()
    kept.request("POST", "/inject", review(driver()))
    assert kept.getresponse().status == 200
    kept.close()


def test_a_certificate_that_is_not_sound_changes_nothing_and_is_told_once(
    webhook: Webhook,
) -> None:
    sound, other = webhook.issued, issue()
    asked = []

    def spoilt() -> Pair:
        asked.append(1)
        return Pair(sound.pair.certificate, other.pair.key)

    webhook.server._source = spoilt
    wait_until(lambda: len(asked) > 3)
    assert webhook.told == ["certificate-presented", "certificate-refused"]
    assert webhook.ask(review(driver()))[0] == 200


def test_until_there_is_a_certificate_no_handshake_succeeds() -> None:
    webhook = Webhook()
    webhook.is_issued = False
    webhook.server.start()
    try:
        assert not webhook.server.is_presenting
        assert webhook.server.ends is None
        assert not succeeds(webhook.connect().connect)
        webhook.is_issued = True
        wait_until(lambda: webhook.server.is_presenting)
        assert webhook.server.ends == webhook.issued.ends
        assert webhook.ask(review(driver()))[0] == 200
    finally:
        webhook.server.close()
    assert not webhook.server.is_presenting


def test_a_port_that_is_taken_is_told_with_a_remedy() -> None:
    with socket.create_server((HOST, 0)) as taken:
        webhook = Webhook()
        server = WebhookServer(
            Informed(knowledge()),
            webhook.pair,
            make_counter(CollectorRegistry()),
            webhook.tell,
            host=HOST,
            port=taken.getsockname()[1],
        )
        with pytest.raises(InputError, match=r"--port \d+: cannot be .*; name a port"):
            server.start()
        server.close()


def test_one_port_that_is_free_is_taken_for_both_families() -> None:
    webhook = Webhook()
    server = WebhookServer(
        Informed(knowledge()),
        webhook.pair,
        make_counter(CollectorRegistry()),
        webhook.tell,
        port=0,
    )
    server.start()
    try:
        for host in (HOST, "::1") if socket.has_dualstack_ipv6() else (HOST,):
            socket.create_connection((host, server.port), timeout=30).close()
    finally:
        server.close()


def test_a_server_that_was_never_started_can_be_closed() -> None:
    Webhook().server.close()


def mount(folder: Path, name: str, issued: Issued) -> None:
    """Put a certificate there as a kubelet does: files are links, and one link is replaced."""
    inner = folder / name
    inner.mkdir()
    (inner / "tls.crt").write_bytes(issued.pair.certificate)
    (inner / "tls.key").write_bytes(issued.pair.key)
    (folder / "new").symlink_to(name)
    (folder / "new").rename(folder / "..data")
    for file in ("tls.crt", "tls.key"):
        if not (folder / file).is_symlink():
            (folder / file).symlink_to(f"..data/{file}")


def test_a_certificate_in_a_folder_is_read_again_when_it_is_renewed(tmp_path: Path) -> None:
    webhook = Webhook(Folder(tmp_path).read)
    webhook.server.start()
    try:
        for number in range(3):
            webhook.issued = issue()
            mount(tmp_path, f"..{number}", webhook.issued)
            wait_until(lambda: succeeds(webhook.connect().connect))
    finally:
        webhook.server.close()


def test_a_folder_without_a_certificate_is_told_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"--certificates-folder .*tls\.crt cannot be read"):
        Folder(tmp_path).read()
    with pytest.raises(InputError, match=r"mount a folder with tls\.crt and tls\.key there"):
        Folder(tmp_path / "none").read()
    (tmp_path / "tls.crt").write_bytes(b"c")
    (tmp_path / "tls.key").write_bytes(b"k")
    assert Folder(tmp_path).read() == Pair(b"c", b"k")


def test_no_key_is_left_in_a_file(webhook: Webhook) -> None:
    assert webhook.server.is_presenting
    links = [os.readlink(entry) for entry in Path("/proc/self/fd").iterdir() if entry.exists()]
    assert not any("certificate" in link for link in links)


def begin(connection: http.client.HTTPSConnection, length: int) -> None:
    """A request whose body never comes."""
    connection.putrequest("POST", "/inject")
    connection.putheader("Content-Length", str(length))
    connection.endheaders()


def test_bodies_that_never_come_leave_room_for_others_and_end(
    webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook_server, "BODY_SECONDS_MAX", 0.5)
    fitting = webhook_server.READ_BYTES_MAX // webhook_server.REVIEW_BYTES_MAX
    begun = [webhook.connect() for _ in range(fitting + 3)]
    for connection in begun:
        connection.connect()
    for connection in begun:  # all of them long before the first one ends
        begin(connection, webhook_server.REVIEW_BYTES_MAX)
    statuses = sorted(connection.getresponse().status for connection in begun)
    assert statuses == [408] * fitting + [503] * 3
    for connection in begun:
        connection.close()
    assert webhook.ask(review(driver()))[0] == 200


def test_a_body_that_is_too_large_is_not_read(webhook: Webhook) -> None:
    connection = webhook.connect()
    begin(connection, webhook_server.REVIEW_BYTES_MAX + 1)
    assert connection.getresponse().status == 413
    connection.close()


def test_connections_that_bring_nothing_give_way(
    webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook_server, "CONNECTIONS_MAX", 3)
    kept = webhook.connect()
    kept.request("POST", "/inject", review(driver()))
    assert kept.getresponse().read()
    silent = [webhook.connect() for _ in range(5)]
    for connection in silent:
        connection.connect()
        assert webhook.ask(review(driver()))[0] == 200
    kept.request("POST", "/inject", review(driver()))
    assert kept.getresponse().status == 200  # who has brought a review stays
    for connection in (kept, *silent):
        connection.close()


def test_connections_that_begin_no_handshake_give_way_as_well(
    webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook_server, "CONNECTIONS_MAX", 3)
    with ExitStack() as stack:
        address = (HOST, webhook.server.port)
        silent = [stack.enter_context(socket.create_connection(address)) for _ in range(4)]
        silent[0].settimeout(webhook_server.HANDSHAKE_SECONDS_MAX / 2)
        with suppress(ConnectionResetError):
            assert silent[0].recv(1) == b""
        assert webhook.ask(review(driver()))[0] == 200
