"""Kubeconfigs for users and service accounts, and clients of the official package made of them.

A kubeconfig names files instead of holding their content: clients then need no temporary copies,
which a killed one would leave behind. Who may do what is RBAC's, set up by the tests.
control_plane.py and scenarios call it.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml
from kubernetes import client, config

from testbed.test_authority import TestCertificate

CONNECT_SECONDS_MAX = 10.0
# The API server gives up a request after 60 s, and says so.
ANSWER_SECONDS_MAX = 90.0
_ENDLESS = re.compile("[?&](watch|follow)=")


def certificate_credential(files: TestCertificate) -> dict[str, str]:
    """What stands below `user` in a kubeconfig, for who shows a certificate."""
    return {"client-certificate": str(files.certificate), "client-key": str(files.key)}


def token_credential(token: str) -> dict[str, str]:
    """What stands below `user` in a kubeconfig, for who shows a token."""
    return {"token": token}


def write_kubeconfig(
    path: Path, *, server: str, authority: Path, user: str, credential: Mapping[str, str]
) -> Path:
    """Write a kubeconfig with one cluster, one user and one context; only its owner may read it."""
    name = "testbed"
    record = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": name, "cluster": {"server": server, "certificate-authority": str(authority)}}
        ],
        "users": [{"name": user, "user": dict(credential)}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": user}}],
        "current-context": name,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(record, sort_keys=False), encoding="utf-8")
    return path


def make_client(
    kubeconfig: Path | str, *, context: str | None = None, repeats: bool = True
) -> client.ApiClient:
    """A client for whom the kubeconfig stands; it takes no proxy, whatever the environment says.

    `kubeconfig` may be several files, as the variable of this name has them; `context` is one of
    theirs, the current one when left out. With `repeats` a request that finds nobody is sent again.
    Requests have a limit of time, but for watches and logs that are followed.
    """
    configuration: Any = client.Configuration()
    load: Callable[..., None] = config.load_kube_config
    load(config_file=str(kubeconfig), context=context, client_configuration=configuration)
    configuration.proxy = None
    if not repeats:
        configuration.retries = False
    return _Client(configuration)


class _Client(client.ApiClient):
    """One that does not wait for ever for a server that is stopped, or a packet that is lost."""

    def call_api(self, method: Any, url: Any, *given: Any, **named: Any) -> Any:
        """The answer to a request. Raises urllib3's `HTTPError` without one."""
        if named.get("_request_timeout") is None and _ENDLESS.search(url) is None:
            named["_request_timeout"] = (CONNECT_SECONDS_MAX, ANSWER_SECONDS_MAX)
        return super().call_api(method, url, *given, **named)
