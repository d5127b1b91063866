"""The API server, as the shell uses it: objects as it has them, a deadline for each request.

The official client does the talking (addresses, credentials that are renewed, TLS, connections);
bodies stay as JSON, read by one fast decoder and not turned into the client's own objects, of which
a hundred thousand pods would need gigabytes. Writes go out only while `may_write` says so. What
cannot be done is one of three failures; nothing is tried again here. Any thread may call it.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
import urllib3
import yaml
from kubernetes import client, config

from rekindle.errors import InputError, RunError
from rekindle_operator.provisioning.bodies import Kind

__all__ = ["Api", "Conflict", "NotLeading", "Refused", "Unreachable", "connect", "path_of"]

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 15.0
PAGE = 500
NOT_FOUND, TIMEOUT, CONFLICT, TOO_MANY = 404, 408, 409, 429
HTTP_ERROR, SERVER_ERROR = 400, 500
JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
# What the client raises for a file that is no kubeconfig: it reads it as if it were one.
UNUSABLE = (OSError, ValueError, TypeError, KeyError, AttributeError)
SHOWN_MAX = 200

Body = dict[str, Any]


class Conflict(RunError):
    """The object is another one than was read, or is there already."""


class NotLeading(RunError):
    """Somebody else acts now: nothing was written."""


class Unreachable(RunError):
    """No answer, or one that says to come back later; a write may have been carried out."""


class Refused(RunError):
    """Refused for good; `status` is HTTP's, 404 where the object or its kind is not there."""

    def __init__(self, where: str, status: int, what: str) -> None:
        super().__init__(where=where, what=what, remedy="see docs/operator.md")
        self.status = status
        self.message = what


def path_of(kind: Kind, namespace: str = "", name: str = "", part: str = "") -> str:
    """Path of all objects of a kind, of those of a namespace, of one, or of a part of it."""
    root = "/apis" if "/" in kind.api_version else "/api"
    within = ("namespaces", namespace) if namespace and kind.namespaced else ()
    parts = (*within, kind.plural, name, part)
    return "/".join([root, kind.api_version, *(quote(item) for item in parts if item)])


def connect(kubeconfig: str | None, *, connections: int) -> client.ApiClient:
    """A client by a kubeconfig, or by the service account of the pod that this runs in."""
    configuration = client.Configuration()
    try:
        if kubeconfig is None:
            config.load_incluster_config(configuration)  # type: ignore[no-untyped-call]
        else:
            config.load_kube_config(  # type: ignore[no-untyped-call]
                kubeconfig, client_configuration=configuration
            )
    except (*UNUSABLE, config.ConfigException, yaml.YAMLError) as error:
        text = " ".join(str(error).split()).rstrip(".")
        known = isinstance(error, config.ConfigException | OSError)
        raise InputError(
            where="--kubeconfig" if kubeconfig is None else f"--kubeconfig {kubeconfig}",
            what=text if known else f"is no kubeconfig ({text[:SHOWN_MAX]})",
            remedy="name a kubeconfig, or run in a pod with a service account",
        ) from error
    configuration.retries = False
    configuration.connection_pool_maxsize = connections
    return client.ApiClient(configuration)


@dataclass(frozen=True, slots=True)
class Api:
    """Through one client, which keeps as many connections as it was given."""

    client: client.ApiClient
    may_write: Callable[[], bool] = lambda: True

    def get(self, path: str) -> Body | None:
        """The object, None where there is none."""
        try:
            return self._decoded("GET", path)
        except Refused as refused:
            if refused.status == NOT_FOUND:
                return None
            raise

    def all(self, path: str, **query: str) -> list[Body]:
        """All objects of a list, page by page."""
        return [body for page, _ in self.pages(path, **query) for body in page["items"]]

    def pages(self, path: str, **query: str) -> Iterator[tuple[Body, str]]:
        """Pages of a list, each with the list's resourceVersion."""
        more = ""
        while True:
            asked = {**query, "limit": str(PAGE), **({"continue": more} if more else {})}
            page = self._decoded("GET", f"{path}?{urlencode(asked)}")
            yield page, page["metadata"].get("resourceVersion", "")
            more = page["metadata"].get("continue", "")
            if not more:
                return

    def watch(self, path: str, version: str, *, limit_seconds: float) -> Iterator[bytes]:
        """Lines of a watch from a version on, until the server ends it. Raises Unreachable when
        nothing, not even a bookmark, comes for `limit_seconds`."""
        asked = {
            "watch": "true",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": "600",
        }
        with _failures(path):
            response = self._send("GET", f"{path}?{urlencode(asked)}", None, JSON, limit_seconds)
            try:
                yield from _lines(response)
            finally:
                response.close()

    def create(self, path: str, body: Mapping[str, Any]) -> Body:
        """Make an object. Conflict when it is there already."""
        return self._write("POST", path, body)

    def replace(self, path: str, body: Mapping[str, Any]) -> Body:
        """Put an object in the place of the version that its body names."""
        return self._write("PUT", path, body)

    def patch(self, path: str, body: Mapping[str, Any], kind: str = MERGE_PATCH) -> Body:
        """Change an object."""
        return self._write("PATCH", path, body, kind)

    def delete(self, path: str, body: Mapping[str, Any]) -> bool:
        """Delete an object with options in `body`; whether it was there. Conflict when it is
        another one than the preconditions say."""
        try:
            self._write("DELETE", path, body)
        except Refused as refused:
            if refused.status == NOT_FOUND:
                return False
            raise
        return True

    def _write(self, method: str, path: str, body: Mapping[str, Any], kind: str = JSON) -> Body:
        if not self.may_write():
            raise NotLeading(where=path, what="is not written", remedy="another one leads")
        return self._decoded(method, path, body, kind)

    def _decoded(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, kind: str = JSON
    ) -> Body:
        with _failures(path):
            response = self._send(method, path, body, kind, ANSWER_SECONDS)
            found: Body = msgspec.json.decode(response.data)
        return found

    def _send(
        self, method: str, path: str, body: Mapping[str, Any] | None, kind: str, seconds: float
    ) -> urllib3.BaseHTTPResponse:
        """The answer, its body unread. Raises what the API server refuses."""
        request = self.client.param_serialize(
            method,
            path,
            header_params={"Accept": JSON, "Content-Type": kind},
            body=body,
            auth_settings=["BearerToken"],
        )
        answer = self.client.call_api(*request, _request_timeout=(CONNECT_SECONDS, seconds))
        response: urllib3.BaseHTTPResponse = answer.response
        if response.status >= HTTP_ERROR:
            raise _failure(path, response)
        return response


@contextmanager
def _failures(path: str) -> Iterator[None]:
    """What the network does, as Unreachable."""
    try:
        yield
    except (urllib3.exceptions.HTTPError, OSError, msgspec.DecodeError) as error:
        raise _unreachable(path, f"{type(error).__name__}: {error}") from error


def _failure(path: str, response: urllib3.BaseHTTPResponse) -> RunError:
    message = _message(response)
    if response.status == CONFLICT:
        return Conflict(where=path, what=message, remedy="it is read again")
    if response.status in (TOO_MANY, TIMEOUT) or response.status >= SERVER_ERROR:
        return _unreachable(path, message)
    return Refused(path, response.status, message)


def _unreachable(path: str, what: str) -> Unreachable:
    return Unreachable(where=path, what=what, remedy="it is tried again")


def _message(response: urllib3.BaseHTTPResponse) -> str:
    """The API server's own words; of whoever stands before it, the status."""
    try:
        said = msgspec.json.decode(response.data)
        return str(said["message"])
    except (msgspec.DecodeError, KeyError, TypeError):
        return f"HTTP status {response.status}"


def _lines(response: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
    rest = b""
    for chunk in response.stream(65_536):
        *lines, rest = (rest + chunk).split(b"\n")
        yield from (line for line in lines if line)
