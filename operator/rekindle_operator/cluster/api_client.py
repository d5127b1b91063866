"""The API server, as the shell uses it: objects as it has them, a deadline for each request.

The official client does the talking (addresses, credentials that are renewed, TLS, connections);
bodies stay as JSON, read by one fast decoder and not turned into the client's own objects, of which
a hundred thousand pods would need gigabytes. Writes go out only while `may_write` says so. What
cannot be done is one of three failures. Nothing is tried again here but what the API server has not
looked at, being asked too much, when it has said how soon to come back. Any thread may call it.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from urllib.parse import quote, urlencode

import msgspec
import urllib3
import yaml
from kubernetes import client, config

from rekindle.model.errors import InputError, RunError
from rekindle_operator.cluster.json_access import ObjectKind

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 15.0
# How long to come back again and again where there is too much to do.
PATIENCE_SECONDS = 5.0
PAUSE_SECONDS_MIN = 0.5
PAGE = 500
UNAUTHORIZED, NOT_FOUND, TIMEOUT, CONFLICT, GONE, TOO_MANY = 401, 404, 408, 409, 410, 429
HTTP_ERROR, SERVER_ERROR = 400, 500
JSON = "application/json"
# Of each object its metadata alone: of a thousand whole ones a list takes a hundred megabytes.
METADATA_LISTS = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE = "application/strategic-merge-patch+json"
# What the client raises for a file that is no kubeconfig: it reads it as if it were one.
UNUSABLE = (OSError, ValueError, TypeError, KeyError, AttributeError)
SHOWN_MAX = 200

Body = dict[str, Any]
Form = TypeVar("Form")


class _PageMetadata(msgspec.Struct, frozen=True, rename={"more": "continue"}):
    more: str = ""


class _Page(msgspec.Struct, Generic[Form], frozen=True):
    """Of a list."""

    metadata: _PageMetadata
    items: list[Form] | None


class ObjectConflict(RunError):
    """The object is another one than was read, or is there already."""


class NotLeading(RunError):
    """Somebody else acts now: nothing was written."""


class ApiUnreachable(RunError):
    """No answer, or one that says to come back later; a write may have been carried out."""


class ApiRefused(RunError):
    """Refused for good; `status` is HTTP's, 404 where the object or its kind is not there."""

    def __init__(self, where: str, status: int, what: str) -> None:
        super().__init__(where=where, what=what, remedy="see docs/operator.md")
        self.status = status
        self.message = what


def path_of(kind: ObjectKind, namespace: str = "", name: str = "", part: str = "") -> str:
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
    """Through one client, which keeps as many connections as it was given. Lists come by pages of
    `page_items`, with `metadata_only` without all else of their objects."""

    client: client.ApiClient
    may_write: Callable[[], bool] = lambda: True
    page_items: int = PAGE
    metadata_only: bool = False

    def get(self, path: str) -> Body | None:
        """The object, None where there is none."""
        try:
            return self._decoded("GET", path)
        except ApiRefused as refused:
            if refused.status == NOT_FOUND:
                return None
            raise

    def all(self, path: str, **query: str) -> list[Body]:
        """All objects of a list, page by page."""
        return [body for page, _ in self.pages(path, **query) for body in page["items"]]

    def pages(self, path: str, **query: str) -> Iterator[tuple[Body, str]]:
        """Pages of a list, each with the list's resourceVersion."""
        more: str | None = ""
        while more is not None:
            page = self._decoded("GET", self._page_of(path, more, query))
            # an empty list of metadata has null here
            page["items"] = page.get("items") or []
            yield page, page["metadata"].get("resourceVersion", "")
            more = page["metadata"].get("continue") or None

    def forms(self, path: str, form: type[Form]) -> Iterator[Form]:
        """All objects of a list, page by page, each as a type with the fields that are wanted: of
        many objects, the others would take most of the time."""
        more: str | None = ""
        while more is not None:
            asked = self._page_of(path, more, {})
            with _failures(path):
                response = self._send("GET", asked, None, JSON, ANSWER_SECONDS)
                page = msgspec.json.decode(response.data, type=_Page[form])  # type: ignore[valid-type]
            yield from page.items or ()
            more = page.metadata.more or None

    def watch(
        self, path: str, version: str, *, limit_seconds: float, **query: str
    ) -> Iterator[bytes]:
        """Lines of a watch from a version on, until the server ends it. Raises Unreachable when
        nothing, not even a bookmark, comes for `limit_seconds`."""
        asked = {
            **query,
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
        return self._decoded("POST", path, body)

    def replace(self, path: str, body: Mapping[str, Any]) -> Body:
        """Put an object in the place of the version that its body names."""
        return self._decoded("PUT", path, body)

    def patch(self, path: str, body: Mapping[str, Any], kind: str = MERGE_PATCH) -> Body:
        """Change an object."""
        return self._decoded("PATCH", path, body, kind)

    def delete(self, path: str, body: Mapping[str, Any]) -> bool:
        """Delete an object with options in `body`; whether it was there. Conflict when it is
        another one than the preconditions say."""
        try:
            self._decoded("DELETE", path, body)
        except ApiRefused as refused:
            if refused.status == NOT_FOUND:
                return False
            raise
        return True

    def _page_of(self, path: str, more: str, query: Mapping[str, str]) -> str:
        """The path of the next page of a list."""
        limit = str(self.page_items)
        asked = {**query, "limit": limit, **({"continue": more} if more else {})}
        return f"{path}?{urlencode(asked)}"

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
        tired_at = time.monotonic() + PATIENCE_SECONDS
        while True:
            response = self._send_once(method, path, body, kind, seconds)
            pause = _pause_asked_for(response)
            if pause is None or time.monotonic() + pause > tired_at:
                break
            response.drain_conn()
            time.sleep(pause)
        if response.status >= HTTP_ERROR:
            raise _failure(path, response)
        return response

    def _send_once(
        self, method: str, path: str, body: Mapping[str, Any] | None, kind: str, seconds: float
    ) -> urllib3.BaseHTTPResponse:
        if method != "GET" and not self.may_write():
            raise NotLeading(where=path, what="is not written", remedy="another one leads")
        accepted = f"{METADATA_LISTS},{METADATA}" if self.metadata_only else JSON
        request = self.client.param_serialize(
            method,
            path,
            header_params={"Accept": accepted, "Content-Type": kind},
            body=body,
            auth_settings=["BearerToken"],
        )
        answer = self.client.call_api(*request, _request_timeout=(CONNECT_SECONDS, seconds))
        response: urllib3.BaseHTTPResponse = answer.response
        return response


@contextmanager
def _failures(path: str) -> Iterator[None]:
    """What the network does, and a token that cannot be read just now, as Unreachable."""
    try:
        yield
    except (
        urllib3.exceptions.HTTPError,
        OSError,
        msgspec.DecodeError,
        config.ConfigException,
    ) as error:
        raise _unreachable(path, f"{type(error).__name__}: {error}") from error


def _pause_asked_for(response: urllib3.BaseHTTPResponse) -> float | None:
    """How many seconds to wait before the same again; None where that is not what was said."""
    said = response.headers.get("Retry-After", "")
    if response.status != TOO_MANY or not said.isdecimal():
        return None
    return max(PAUSE_SECONDS_MIN, float(said))


def _failure(path: str, response: urllib3.BaseHTTPResponse) -> RunError:
    message = _message(response)
    if response.status == CONFLICT:
        return ObjectConflict(where=path, what=message, remedy="it is read again")
    # Of a token that is renewed just now nothing is refused for good: it is no word on the object.
    later = response.status in (UNAUTHORIZED, TOO_MANY, TIMEOUT)
    if later or response.status >= SERVER_ERROR:
        return _unreachable(path, message)
    return ApiRefused(path, response.status, message)


def _unreachable(path: str, what: str) -> ApiUnreachable:
    return ApiUnreachable(where=path, what=what, remedy="it is tried again")


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
