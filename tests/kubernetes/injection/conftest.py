"""What tests of the webhook share: a namespace that lets no pod in that may do too much."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

sys.path.insert(0, str(Path(__file__).parent))

import injection_webhook
from injection_webhook import Webhook


@pytest.fixture
def core(api_client: client.ApiClient) -> Any:
    """Pods, by an administrator."""
    return client.CoreV1Api(api_client)


@pytest.fixture
def restricted(core: Any, namespace: str) -> str:
    """A namespace with the Pod Security Standard `restricted`."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    core.patch_namespace(namespace, {"metadata": {"labels": labels}})
    return namespace


@pytest.fixture
def webhook(api_client: client.ApiClient, restricted: str) -> Iterator[Webhook]:
    """A webhook that the API server asks about the pods of that namespace."""
    with injection_webhook.serving(api_client, restricted) as webhook:
        yield webhook
