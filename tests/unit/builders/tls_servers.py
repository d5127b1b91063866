"""Certificates as files, and a server that presents one."""

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from socket import create_server, socket

from rekindle_operator.webhook import certificate_rotation
from rekindle_operator.webhook.certificate_rotation import Issued

HOST = "127.0.0.1"

Serve = Callable[[socket], object]


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """`server` has key and chain, `authority` what signed them, all in PEM."""

    server: Path
    authority: Path

    def write(self, issued: Issued) -> "TlsFiles":
        """Put another certificate in the place of what is there, as one step."""
        for file, content in (
            (self.server, issued.pair.key + issued.pair.certificate),
            (self.authority, issued.authority),
        ):
            new = file.with_suffix(".new")
            new.write_bytes(content)
            new.rename(file)
        return self


def make_certificate(*hosts: str, starts_in: timedelta = timedelta(0)) -> Issued:
    """One for these names or addresses, of an authority of its own."""
    return certificate_rotation.issue(
        hosts or (HOST,), datetime.now(UTC) + starts_in, usages=certificate_rotation.PEER
    )


def tls_files(folder: Path, issued: Issued | None = None) -> TlsFiles:
    """The files of a certificate, by default of a new one for 127.0.0.1."""
    folder.mkdir(parents=True, exist_ok=True)
    found = TlsFiles(folder / "server.pem", folder / "authority.pem")
    return found.write(issued or make_certificate())


@contextmanager
def tls_server(files: TlsFiles | None, serve: Serve = lambda _: None) -> Iterator[tuple[str, int]]:
    """Serves each connection on a thread, then closes it; in plain text without files. It reads the
    files again for each."""
    with create_server((HOST, 0)) as server:
        thread = threading.Thread(target=_accept_all, args=(server, files, serve))
        thread.start()
        try:
            yield server.getsockname()
        finally:
            server.shutdown(2)
            thread.join()


def _accept_all(server: socket, files: TlsFiles | None, serve: Serve) -> None:
    while True:
        try:
            plain, _ = server.accept()
        except OSError:  # it is shut down
            return
        with plain:
            try:
                _serve(plain, files, serve)
            except OSError:  # the client has gone
                continue


def _serve(plain: socket, files: TlsFiles | None, serve: Serve) -> None:
    if files is None:
        plain.recv(1)
        serve(plain)
        return
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.server)
    with context.wrap_socket(plain, server_side=True) as wrapped:
        serve(wrapped)
