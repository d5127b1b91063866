"""Requests to the API server, through the official client, as JSON.

Objects stay as the API has them: what they mean is for others. Every refusal is raised as an
InputError with place and remedy (`api_errors`); whoever can do without an object catches it.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import urllib3
from kubernetes import client
from kubernetes.client.exceptions import ApiException

from rekindle_operator.kubectl import api_errors, kubeconfig
from rekindle_operator.kubectl.plugin_options import Target
from rekindle_operator.kubectl.resource_kinds import ResourceKind

CONNECT_SECONDS_MAX = 5.0
ANSWER_SECONDS_MAX = 30.0
PAGE_ITEMS = 500
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"

Object = dict[str, Any]


class ApiConnection:
    """The API server, and the namespace that is meant; None for all of them."""

    def __init__(self, api: client.ApiClient, namespace: str, *, everywhere: bool = False) -> None:
        self._api = api
        self.default_namespace = namespace
        self.namespace: str | None = None if everywhere else namespace

    def within(self, namespace: str) -> "ApiConnection":
        """The same API server, and another namespace."""
        return ApiConnection(self._api, namespace)

    @property
    def server(self) -> str:
        """Its address."""
        return str(self._api.configuration.host)

    def get(self, kind: ResourceKind, name: str, namespace: str | None = None) -> Object:
        """One object, of the namespace that is meant unless another is given."""
        namespace = namespace or self.default_namespace
        return self._send("get", kind, kind.place(namespace, name), kind.path(namespace, name))

    def list(self, kind: ResourceKind, namespace: str | None = None, **query: str) -> list[Object]:
        """All objects of a namespace; without one, of all namespaces."""
        where, path = kind.place(namespace), kind.path(namespace)
        found: list[Object] = []
        asked = {"limit": str(PAGE_ITEMS), **query}
        while True:
            page = self._send("list", kind, where, path, query=asked)
            for item in page.get("items") or ():
                # Items of a list do not say what they are.
                found.append({"apiVersion": kind.api, "kind": kind.name, **item})
            following = (page.get("metadata") or {}).get("continue")
            if not following:
                return found
            asked = {**asked, "continue": following}

    def apply(
        self, kind: ResourceKind, record: Object, manager: str, *, force: bool = False
    ) -> Object:
        """Server-side apply of a part of an object under a field manager."""
        metadata = record["metadata"]
        return self._patch(
            kind,
            (metadata["namespace"], metadata["name"]),
            record,
            {"fieldManager": manager, "force": str(force).lower()},
            APPLY,
        )

    def merge(
        self,
        kind: ResourceKind,
        place: tuple[str, str],
        change: Object,
        manager: str,
        content: str = MERGE,
    ) -> Object:
        """A merge patch of the object at `place` (namespace, name); `content` may be STRATEGIC."""
        return self._patch(kind, place, change, {"fieldManager": manager}, content)

    def _patch(
        self,
        kind: ResourceKind,
        place: tuple[str, str],
        body: Object,
        query: Mapping[str, str],
        content: str,
    ) -> Object:
        where, path = kind.place(*place), kind.path(*place)
        asked = {**query, "fieldValidation": "Strict"}
        return self._send("patch", kind, where, path, query=asked, body=body, content=content)

    def _send(
        self,
        verb: str,
        kind: ResourceKind,
        where: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Object | None = None,
        content: str = "application/json",
    ) -> Object:
        headers = {"Accept": "application/json", "Content-Type": content}
        method = "PATCH" if verb == "patch" else "GET"
        try:
            request = self._api.param_serialize(
                method,
                path,
                query_params=list((query or {}).items()),
                header_params=headers,
                body=body,
                auth_settings=["BearerToken"],
            )
            answer: Any = self._api.call_api(
                *request, _request_timeout=(CONNECT_SECONDS_MAX, ANSWER_SECONDS_MAX)
            )
            content_read: bytes = answer.read()
        except (urllib3.exceptions.HTTPError, ApiException, OSError) as error:
            raise api_errors.unreachable(self.server, error) from None
        if not 200 <= answer.status < 300:
            raise api_errors.read(kind, where, verb, answer.status, content_read)
        try:
            found = json.loads(content_read)
        except ValueError as error:
            raise api_errors.unreachable(self.server, error) from None
        return found if isinstance(found, dict) else {}


@contextmanager
def connected(target: Target) -> Iterator[ApiConnection]:
    """The cluster that the options mean; nothing is asked of it yet."""
    access = kubeconfig.load(target)
    # One try: who has lost the network wants to hear so at once.
    access.configuration.retries = False
    with client.ApiClient(access.configuration) as api:
        yield ApiConnection(api, access.namespace, everywhere=target.everywhere)
