"""A small server on this machine that speaks as much of S3 as a store needs, with quirks."""

import re
import ssl
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit


@dataclass(slots=True)
class Quirks:
    """What the server does otherwise than Amazon's.

    `conditional` and `bulk` are a status and code to answer such requests with, `conflicts` how
    many conditional puts of a key answer 409 before one counts. Where `missing` is set, deletes say
    of an object that it was not there.
    """

    conditional: tuple[int, str] | None = None
    bulk: tuple[int, str] | None = None
    conflicts: int = 0
    overwrites: bool = False
    missing: bool = False


@dataclass(slots=True)
class S3Server:
    """Its address and objects, and each request's method, path and status."""

    address: str
    quirks: Quirks = field(default_factory=Quirks)
    objects: dict[str, bytes] = field(default_factory=dict)
    parts: dict[str, dict[int, bytes]] = field(default_factory=dict)
    requests: list[tuple[str, str, int]] = field(default_factory=list)
    conflicts: Counter[str] = field(default_factory=Counter)


@contextmanager
def serving(
    *, tls: ssl.SSLContext | None = None, quirks: Quirks | None = None
) -> Iterator[S3Server]:
    """Serve until the block ends, at a port that the system chooses."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    scheme = "http"
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
        scheme = "https"
    state = S3Server(f"{scheme}://127.0.0.1:{server.server_address[1]}", quirks or Quirks())
    server.state = state  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def state(self) -> S3Server:
        found: S3Server = self.server.state  # type: ignore[attr-defined]
        return found

    def log_message(self, *_: Any) -> None:
        """Print nothing."""

    def do_PUT(self) -> None:
        key, data = self._key(), self._body()
        part = self._query("partNumber")
        if part:
            self.state.parts.setdefault(key, {})[int(part)] = data
            self._answer(200, etag=f'"{part}"')
            return
        if self.headers.get("If-None-Match") == "*":
            refusal = self._conditional(key)
            if refusal is not None:
                self._error(*refusal)
                return
        self.state.objects[key] = data
        self._answer(200, etag='"e"')

    def _conditional(self, key: str) -> tuple[int, str] | None:
        quirks = self.state.quirks
        if quirks.conditional:
            return quirks.conditional
        if self.state.conflicts[key] < quirks.conflicts:
            self.state.conflicts[key] += 1
            return 409, "ConditionalRequestConflict"
        if key in self.state.objects and not quirks.overwrites:
            return 412, "PreconditionFailed"
        return None

    def do_GET(self) -> None:
        key = self._key()
        if "list-type=2" in self.path:
            self._answer(200, self._listing())
        elif key in self.state.objects:
            modified = "Thu, 01 Jan 2026 00:00:00 GMT"
            content, status = self.state.objects[key], 200
            told = {"etag": '"e"', "last_modified": modified}
            asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
            if asked:
                begin, last, status = int(asked[1]), int(asked[2]), 206
                told["content_range"] = f"bytes {begin}-{last}/{len(content)}"
                content = content[begin : last + 1]
            self._answer(status, content, **told)
        else:
            self._error(404, "NoSuchKey")

    def do_HEAD(self) -> None:
        self.do_GET()

    def _listing(self) -> bytes:
        """All keys of a prefix, on one page."""
        (prefix,) = parse_qs(urlsplit(self.path).query).get("prefix", [""])
        found = "".join(
            f"<Contents><Key>{key}</Key><Size>{len(data)}</Size><ETag>e</ETag>"
            "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
            for key, data in sorted(self.state.objects.items())
            if key.startswith(prefix)
        )
        head = "<Name>bucket</Name><IsTruncated>false</IsTruncated>"
        return f"<ListBucketResult>{head}{found}</ListBucketResult>".encode()

    def do_DELETE(self) -> None:
        gone = self.state.objects.pop(self._key(), None)
        if gone is None and self.state.quirks.missing:
            self._error(404, "NoSuchKey")
            return
        self._answer(204)

    def do_POST(self) -> None:
        if "uploads" in urlsplit(self.path).query:
            begun = "<InitiateMultipartUploadResult><UploadId>1</UploadId>"
            self._answer(200, f"{begun}</InitiateMultipartUploadResult>".encode())
            return
        if self._query("uploadId"):
            self._body()
            parts = self.state.parts.pop(self._key())
            self.state.objects[self._key()] = b"".join(parts[n] for n in sorted(parts))
            done = "<CompleteMultipartUploadResult><ETag>e</ETag></CompleteMultipartUploadResult>"
            self._answer(200, done.encode())
            return
        wanted = re.findall(r"<Key>(.*?)</Key>", self._body().decode())
        if self.state.quirks.bulk:
            self._error(*self.state.quirks.bulk)
            return
        gone = "".join(map(self._deleted, wanted))
        self._answer(200, f"<DeleteResult>{gone}</DeleteResult>".encode())

    def _deleted(self, key: str) -> str:
        """Delete an object; what the answer to a request for several says of it."""
        if self.state.objects.pop(key, None) is None and self.state.quirks.missing:
            said = "<Code>NoSuchKey</Code><Message>It was not there</Message>"
            return f"<Error><Key>{key}</Key>{said}</Error>"
        return f"<Deleted><Key>{key}</Key></Deleted>"

    def _key(self) -> str:
        return unquote(urlsplit(self.path).path).lstrip("/").partition("/")[2]

    def _query(self, name: str) -> str:
        return parse_qs(urlsplit(self.path).query).get(name, [""])[0]

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _error(self, status: int, code: str) -> None:
        text = f"<Error><Code>{code}</Code><Message>It says {code}.</Message></Error>"
        self._answer(status, text.encode())

    def _answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.state.requests.append((self.command, self.path, status))
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
