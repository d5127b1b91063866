"""Requests to the API server, through the official client, as JSON.

Objects stay as the API has them: what they mean is for others. Every refusal is raised as an
InputError with place and remedy; whoever can do without an object catches it.
"""

import json
import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import urllib3
import yaml
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from kubernetes.config.config_exception import ConfigException

from rekindle.model.errors import InputError
from rekindle_operator.api.custom_resources import GROUP, VERSION, clipped
from rekindle_operator.kubectl.plugin_options import Target

# Kinds of objects that the plugin reads or changes, and where the API server has them.


@dataclass(frozen=True, slots=True)
class ResourceKind:
    """A kind of object: what people call one, its API (group/version, or v1), its plural there."""

    name: str
    api: str
    plural: str
    namespaced: bool = True

    @property
    def group(self) -> str:
        """The API group; "" for Kubernetes' core."""
        return self.api.partition("/")[0] if "/" in self.api else ""

    def path(self, namespace: str | None = None, name: str | None = None) -> str:
        """Where the objects of a namespace are, or of all; or one object."""
        root = f"/apis/{self.api}" if self.group else f"/api/{self.api}"
        inside = f"/namespaces/{quote(namespace, '')}" if namespace and self.namespaced else ""
        return f"{root}{inside}/{self.plural}" + (f"/{quote(name, '')}" if name else "")

    def place(self, namespace: str | None = None, name: str | None = None) -> str:
        """The same in words, for messages."""
        shown = f"{namespace}/{name}" if namespace and name and self.namespaced else name
        if shown:
            return f"{self.name} {shown}"
        within = f" of namespace {namespace}" if namespace and self.namespaced else ""
        return f"{self.plural}{within}"


OURS = f"{GROUP}/{VERSION}"
POLICIES = ResourceKind("RecoveryPolicy", OURS, "recoverypolicies")
RECOVERIES = ResourceKind("Recovery", OURS, "recoveries")
CLASSES = ResourceKind("RecoveryClass", OURS, "recoveryclasses", namespaced=False)
PODS = ResourceKind("Pod", "v1", "pods")
CLAIMS = ResourceKind("PersistentVolumeClaim", "v1", "persistentvolumeclaims")
QUOTAS = ResourceKind("ResourceQuota", "v1", "resourcequotas")
LIMIT_RANGES = ResourceKind("LimitRange", "v1", "limitranges")
CONFIG_MAPS = ResourceKind("ConfigMap", "v1", "configmaps")
DEPLOYMENTS = ResourceKind("Deployment", "apps/v1", "deployments")
NODES = ResourceKind("Node", "v1", "nodes", namespaced=False)
# The newest version of each operator's first; the first that is served is read.
SPARK_APPLICATIONS = (
    (ResourceKind("SparkApplication", "sparkoperator.k8s.io/v1beta2", "sparkapplications"),),
    (
        ResourceKind("SparkApplication", "spark.apache.org/v1", "sparkapplications"),
        ResourceKind("SparkApplication", "spark.apache.org/v1beta1", "sparkapplications"),
    ),
)


# Errors of the API server as sentences with a remedy.
#
# Pure: status code and body in, an InputError with place and remedy out.

INSTALL = "install the definitions: kubectl apply --server-side -f crds/"
SHOWN_MAX = 400
CONFLICT = re.compile(r'conflict with "([^"]+)"')
# What the client's words about a failed connection come down to, the first that is found.
CAUSES = tuple(
    map(
        re.compile,
        (
            r"\[Errno -?\d+\] ([^)\]\"']+)",
            r"(certificate verify failed[^(]*[^(\s])",
            r"(timed out)",
            r": ([^:]+)$",
            r"(.+)",
        ),
    )
)
NOBODY = "system:anonymous"
FIELD_CONFLICT = "FieldManagerConflict"
# Roles of the chart that the usual ones of a namespace take up.
ROLES = "rekindle-view to look and rekindle-edit to change"


class ApiRefusal(InputError):
    """The API server's no. `status` is HTTP's, `managers` are those who have fields that an apply
    would have taken, `missing_kind` says that it does not know the kind at all."""

    def __init__(
        self,
        *,
        where: str,
        what: str,
        remedy: str,
        status: int,
        managers: tuple[str, ...] = (),
        missing_kind: bool = False,
    ) -> None:
        super().__init__(where=where, what=what, remedy=remedy)
        self.status = status
        self.managers = managers
        self.missing_kind = missing_kind

    def __reduce__(self) -> tuple[object, ...]:
        return _again, (self.where, self.what, self.remedy, self.status, self.managers)


def refusal_of(kind: ResourceKind, where: str, verb: str, status: int, body: bytes) -> ApiRefusal:
    """What the answer to a request about `kind` means; `where` is the place in words."""
    said = _status(body)
    message = clipped(" ".join(str(said.get("message") or "").split()), SHOWN_MAX)
    if status == 404:
        return _not_found(kind, where, said)
    if status == 409:
        return _conflict(where, message, said)
    if status == 403 and NOBODY in message:
        status = 401  # the kubeconfig's credentials were none, or could not be had
    what, remedy = _meaning(kind, verb, status, message)
    return ApiRefusal(where=where, what=what, remedy=remedy, status=status)


def unreachable(server: str, error: Exception) -> InputError:
    """There was no answer at all."""
    text = " ".join(str(error).split())
    found = next(filter(None, (cause.search(text) for cause in CAUSES)), None)
    why = found[1] if found else type(error).__name__
    return InputError(
        where=f"API server {server}",
        what=f"does not answer ({clipped(why, SHOWN_MAX)})",
        remedy="see that it is up and can be reached from here, and that the context is right",
    )


def _meaning(kind: ResourceKind, verb: str, status: int, message: str) -> tuple[str, str]:
    """What is wrong and the remedy, by the status code."""
    resource = f"{kind.plural}.{kind.group}" if kind.group else kind.plural
    match status:
        case 401:
            return "your credentials are refused", "log in again; see `kubectl auth whoami`"
        case 403:
            ask = f"`kubectl auth can-i {verb} {resource}`"
            remedy = f"ask for the right; {ask} says whether you have it"
            if kind.group == GROUP:
                remedy = f"ask for a role that has it ({ROLES}); {ask} tells"
            return f"you may not {verb} {kind.plural} here", remedy
        case 400 | 422:
            return message or "the API server refuses it", "correct it; see docs/resources.md"
        case 429:
            return "the API server has too much to do", "try again in a while"
    return (
        f"the API server failed ({status}{': ' if message else ''}{message})",
        "try again; if it stays so, see the API server's log",
    )


def _not_found(kind: ResourceKind, where: str, said: Mapping[str, Any]) -> ApiRefusal:
    """An object that is not there, or a kind that the server does not know."""
    details = said.get("details") or {}
    if details.get("name"):
        return ApiRefusal(
            where=where,
            what="is not there",
            remedy=f"see `kubectl get {kind.plural}`, and the namespace (-n)",
            status=404,
        )
    remedy = INSTALL if kind.group == GROUP else f"install what serves {kind.api}"
    return ApiRefusal(
        where=where,
        what=f"the API server does not know {kind.plural} of {kind.api}",
        remedy=remedy,
        status=404,
        missing_kind=True,
    )


def _conflict(where: str, message: str, said: Mapping[str, Any]) -> ApiRefusal:
    """Somebody else has the fields, or has changed the object meanwhile."""
    causes = (said.get("details") or {}).get("causes") or ()
    named = [
        manager
        for cause in causes
        if cause.get("reason") == FIELD_CONFLICT
        for manager in CONFLICT.findall(str(cause.get("message")))
    ]
    managers = tuple(dict.fromkeys(named))
    if not managers:
        return ApiRefusal(
            where=where,
            what=f"it has changed meanwhile ({message})" if message else "it has changed meanwhile",
            remedy="try again",
            status=409,
        )
    fields = sorted({str(cause.get("field")) for cause in causes if cause.get("field")})
    belongs = "belong" if len(fields) > 1 else "belongs"
    return ApiRefusal(
        where=where,
        what=f"{', '.join(fields) or 'a field'} {belongs} to {' and '.join(managers)}",
        remedy="change it there, or take it with --force",
        status=409,
        managers=managers,
    )


def _status(body: bytes) -> Mapping[str, Any]:
    try:
        said = json.loads(body)
    except ValueError:
        return {"message": body.decode(errors="replace")}
    return said if isinstance(said, dict) else {}


def _again(
    where: str, what: str, remedy: str, status: int, managers: tuple[str, ...]
) -> ApiRefusal:
    return ApiRefusal(where=where, what=what, remedy=remedy, status=status, managers=managers)


# Which cluster, namespace and credentials are meant: the kubeconfig, else the pod's own account.

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
DEFAULT_NAMESPACE = "default"
NAMES_SHOWN_MAX = 200


class KubeAccess(NamedTuple):
    """How to get there, and the namespace that holds where none is named."""

    configuration: client.Configuration
    namespace: str


def load_access(target: Target) -> KubeAccess:
    """The access that the options mean; InputError without a kubeconfig, or with a broken one."""
    # The client tells of a credential plugin that fails in the log, and then asks as nobody.
    logging.getLogger().addHandler(logging.NullHandler())
    path = str(target.kubeconfig) if target.kubeconfig is not None else None
    if path is None and target.context is None and not _has_kubeconfig():
        return _of_pod()
    where = f"kubeconfig {path or os.environ.get('KUBECONFIG') or '~/.kube/config'}"
    configuration = client.Configuration()
    load_config: Callable[..., None] = config.load_kube_config
    list_contexts: Callable[..., Any] = config.list_kube_config_contexts
    try:
        contexts, current = list_contexts(path)
        load_config(
            config_file=path,
            context=target.context,
            client_configuration=configuration,
            persist_config=False,
        )
    except ConfigException as error:
        raise _unusable(where, str(error), target) from None
    except (OSError, ValueError, TypeError, KeyError, AttributeError, yaml.YAMLError) as error:
        raise _unusable(where, f"cannot be read: {error}", target) from None
    chosen = current if target.context is None else _named(contexts, target.context)
    namespace = ((chosen or {}).get("context") or {}).get("namespace")
    return KubeAccess(configuration, target.namespace or namespace or DEFAULT_NAMESPACE)


def _has_kubeconfig() -> bool:
    named = os.environ.get("KUBECONFIG", "")
    paths = [Path(part) for part in named.split(os.pathsep) if part]
    if not named:
        paths = [Path.home() / ".kube" / "config"]
    return any(path.exists() for path in paths) or not ACCOUNT.exists()


def _of_pod() -> KubeAccess:
    """Inside of a pod: its service account."""
    configuration = client.Configuration()
    load_config: Callable[..., None] = config.load_incluster_config
    try:
        load_config(client_configuration=configuration)
    except ConfigException as error:
        raise _unusable("service account", str(error), Target()) from None
    return KubeAccess(configuration, (ACCOUNT / "namespace").read_text().strip())


def _named(contexts: list[dict[str, Any]], name: str) -> dict[str, Any] | None:
    return next((context for context in contexts if context.get("name") == name), None)


def _unusable(where: str, what: str, target: Target) -> InputError:
    remedy = "name one with --kubeconfig or $KUBECONFIG; `kubectl config view` shows it"
    if target.context is not None:
        remedy = "see `kubectl config get-contexts` for those that there are"
    text = " ".join(what.split()).rstrip(".")
    text = text[:1].lower() + text[1:]
    return InputError(where=where, what=clipped(text, NAMES_SHOWN_MAX), remedy=remedy)


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
            raise unreachable(self.server, error) from None
        if not 200 <= answer.status < 300:
            raise refusal_of(kind, where, verb, answer.status, content_read)
        try:
            found = json.loads(content_read)
        except ValueError as error:
            raise unreachable(self.server, error) from None
        return found if isinstance(found, dict) else {}


@contextmanager
def connected(target: Target) -> Iterator[ApiConnection]:
    """The cluster that the options mean; nothing is asked of it yet."""
    access = load_access(target)
    # One try: who has lost the network wants to hear so at once.
    access.configuration.retries = False
    with client.ApiClient(access.configuration) as api:
        yield ApiConnection(api, access.namespace, everywhere=target.everywhere)
