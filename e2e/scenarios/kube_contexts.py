"""A context of the user's kubeconfig: found, and its API server asked before anything is made.

The kubeconfig is one file or several, as `KUBECONFIG` names them; it needs no current context. What
goes wrong between us and the server is told with the context's name and the server's address.
`scenario_prerequisites` asks; `clusters` has the context written alone, and works with it.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

import msgspec
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

from rekindle.model.errors import InputError
from testbed import kubeconfigs

CONTEXT, KUBECONFIG = "REKINDLE_E2E_CONTEXT", "KUBECONFIG"
FILE = "~/.kube/config"
# What only administrators may, of all that scenarios do: verb, group and kind.
RIGHTS = (
    ("create", "", "namespaces"),
    ("create", "", "persistentvolumes"),
    ("create", "rbac.authorization.k8s.io", "clusterrolebindings"),
    ("patch", "", "nodes"),
)
SAID_MAX = 300


class _Server(msgspec.Struct, frozen=True):
    server: str = ""


class _Cluster(msgspec.Struct, frozen=True):
    name: str
    cluster: _Server


class _Link(msgspec.Struct, frozen=True):
    cluster: str = ""
    user: str = ""


class _Named(msgspec.Struct, frozen=True):
    name: str
    context: _Link


class _User(msgspec.Struct, frozen=True):
    """Nobody reads it here: the client meets what is none with a traceback."""

    name: str
    user: dict[str, Any] | None = None


class _File(msgspec.Struct, frozen=True):
    """A kubeconfig, as far as it matters here."""

    clusters: tuple[_Cluster, ...] | None = None
    contexts: tuple[_Named, ...] | None = None
    users: tuple[_User, ...] | None = None


@dataclass(frozen=True, slots=True)
class Context:
    """Its name, the API server that it leads to, and the files of the kubeconfig."""

    name: str
    server: str
    files: str

    def check(self) -> None:
        """Raises `InputError` where the server is not reached, or its user may not do enough."""
        with self.explained():
            api_client: Any = kubeconfigs.make_client(self.files, context=self.name, repeats=False)
            with api_client:
                self._check_rights(client.AuthorizationV1Api(api_client))

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Inside, what fails between us and the server raises `InputError` that says which."""
        try:
            yield
        except ApiException as error:
            raise self._refusal(*_told(error)) from error
        except (HTTPError, OSError) as error:
            raise self._refusal(
                f"does not answer: {_line(error)}", "see whether {} comes to it"
            ) from error
        except config.ConfigException as error:
            raise refusal(self.name, _line(error), f"correct it in {self.files}") from error

    def _check_rights(self, asked: Any) -> None:
        refused = [
            f"{verb} {kind}" for verb, group, kind in RIGHTS if not _may(asked, verb, group, kind)
        ]
        if refused:
            raise self._refusal(
                f"does not let its user {', '.join(refused)}",
                "name a context of an administrator; {} tells who this one is",
                "auth whoami",
            )

    def _refusal(self, what: str, remedy: str, command: str = "get nodes") -> InputError:
        shown = f"`kubectl --context {self.name} {command}`"
        return refusal(self.name, f"its API server {self.server} {what}", remedy.format(shown))


def find(name: str, environment: Mapping[str, str]) -> Context:
    """The context of a name. Raises `InputError` for files that are none of kubectl's, and for a
    name that none of them has."""
    files = environment.get(KUBECONFIG) or FILE
    read = [_read(path) for path in _there(files)]
    contexts = _first(one for file in read for one in file.contexts or ())
    clusters = _first(one for file in read for one in file.clusters or ())
    if name not in contexts:
        known = ", ".join(contexts) or "none"
        raise refusal(name, f"names no context of {files}", f"name one that is there: {known}")
    cluster = clusters.get(contexts[name].context.cluster)
    if cluster is None or not cluster.cluster.server:
        raise refusal(name, f"leads to no API server in {files}", "see `kubectl config view`")
    return Context(name, cluster.cluster.server, files)


def _there(files: str) -> Sequence[Path]:
    """Those of the files that are there: kubectl passes over the others as well."""
    named = [Path(one).expanduser() for one in files.split(os.pathsep) if one]
    found = [path for path in named if os.path.exists(path)]
    if not found:
        raise InputError(
            where=f"{KUBECONFIG}={files}",
            what="names no file that is there",
            remedy=f"let {KUBECONFIG} name the kubeconfig of the cluster",
        )
    return found


def _read(path: Path) -> _File:
    try:
        return msgspec.yaml.decode(path.read_bytes(), type=_File)
    except (OSError, UnicodeDecodeError, msgspec.DecodeError) as error:
        raise InputError(
            where=str(path),
            what=f"is no kubeconfig that can be read: {_line(error)}",
            remedy=f"correct it, or let {KUBECONFIG} name another file",
        ) from error


def _first(found: Iterator[Any]) -> dict[str, Any]:
    """By their names; the first of a name counts, as for kubectl."""
    named: dict[str, Any] = {}
    for one in found:
        named.setdefault(one.name, one)
    return named


def _may(asked: Any, verb: str, group: str, kind: str) -> bool:
    about = {"verb": verb, "group": group, "resource": kind}
    review = asked.create_self_subject_access_review({"spec": {"resourceAttributes": about}})
    return bool(review.status and review.status.allowed)


def _told(error: ApiException) -> tuple[str, str]:
    """What an answer that is a refusal means, and what to do."""
    if error.status == HTTPStatus.UNAUTHORIZED:
        return "does not know its user (401)", "log in anew, or correct the user; {} shows it"
    if error.status == HTTPStatus.FORBIDDEN:
        return "refuses it (403)", "name a context of an administrator; see {}"
    if not error.status:
        return f"cannot be spoken to: {_line(error)}", "see whether {} comes to it"
    return f"answers {error.status} {error.reason}", "see whether it is one; {} asks it too"


def _line(error: Exception) -> str:
    """What an error says, in one line."""
    return " ".join(str(error).split())[:SAID_MAX] or repr(error)[:SAID_MAX]


def refusal(name: str, what: str, remedy: str) -> InputError:
    """What is wrong with the context of a name, or with its cluster."""
    return InputError(where=f"{CONTEXT}={name}", what=what, remedy=remedy)
