"""What tests of providers share: the real definitions of foreign kinds, and an operator's hands."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))

import foreign_crds
from provider_shell import Shell

from rekindle_operator.cluster.json_access import text
from rekindle_operator.provisioning.providers.node_claims import NODE_CLAIM
from testbed.foreign_crds import PROVIDERS, definition, install

RECOVERIES = Path(__file__).parents[3] / "crds" / "recoveries.yaml"


@pytest.fixture(scope="module")
def definitions() -> list[dict[str, Any]]:
    """The real definitions of the kinds that providers make or change."""
    return foreign_crds.stored(*PROVIDERS)


@pytest.fixture
def shell(
    api_client: client.ApiClient, namespace: str, definitions: list[dict[str, Any]]
) -> Iterator[Shell]:
    """An operator's hands, in a namespace that is its own and the application's."""
    install(api_client, [*definitions, definition(RECOVERIES)])
    shell = Shell(api_client, namespace)
    yield shell
    for claim in shell.all(NODE_CLAIM):
        shell.api(NODE_CLAIM).delete(name=text(claim, "metadata", "name"))
