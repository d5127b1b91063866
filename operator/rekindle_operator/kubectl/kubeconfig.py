"""Which cluster, namespace and credentials are meant: the kubeconfig, else the pod's own account.

`api_connection` makes its client of the answer.
"""

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from kubernetes import client, config
from kubernetes.config.config_exception import ConfigException

from rekindle.model.errors import InputError
from rekindle_operator.api.custom_resources import clipped
from rekindle_operator.kubectl.plugin_options import Target

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
DEFAULT_NAMESPACE = "default"
SHOWN_MAX = 200


class KubeAccess(NamedTuple):
    """How to get there, and the namespace that holds where none is named."""

    configuration: client.Configuration
    namespace: str


def load(target: Target) -> KubeAccess:
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
    return InputError(where=where, what=clipped(text, SHOWN_MAX), remedy=remedy)
