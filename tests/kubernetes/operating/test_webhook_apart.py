"""Webhook and operator do without each other: either is killed, and the other one goes on."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from acting_driver import pod_body
from operating_world import World, await_that
from operator_process import WebhookProcess

# The limit of the webhook's container in the chart.
MEMORY_BYTES_MAX = 128 << 20
ASKS = {"rekindle.dev/inject": "true"}


@pytest.fixture
def killed(webhook: WebhookProcess) -> Iterator[WebhookProcess]:
    """A webhook that a test may kill; it runs again afterwards."""
    yield webhook
    if webhook.ended:
        webhook.start()


def has_sidecar(world: World, name: str) -> bool:
    """Whether a driver that is made now would get its sidecar."""
    body = pod_body(f"{name}-driver", "driver", name, **ASKS)
    made = world.core.create_namespaced_pod(world.namespace, body, dry_run="All")
    return [item.name for item in made.spec.init_containers or ()] == ["rekindle-sidecar"]


@pytest.mark.usefixtures("asking")
def test_the_webhook_is_killed_and_the_operator_leads_on(
    world: World, killed: WebhookProcess
) -> None:
    """Pods are made all the same, without a sidecar, and a loss is planned for."""
    world.start(zones=("a", "b"), driver={"inject": True})
    assert has_sidecar(world, "others")
    killed.kill()
    assert not has_sidecar(world, "others")
    world.lose(*world.executors_nodes()[:2])
    await_that(lambda: world.driver.plans(), "no plan was made")
    assert world.operator.acts
    killed.start()


@pytest.mark.usefixtures("asking")
def test_the_operator_is_killed_and_pods_are_injected_still(
    world: World, webhook: WebhookProcess
) -> None:
    """Also by a webhook that begins while no operator runs, and in its limit of memory."""
    world.start(zones=("a", "b"), driver={"inject": True})
    world.operator.kill()
    assert has_sidecar(world, "others")
    assert has_sidecar(world, "others")
    memory = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{webhook.process_id}/status").read_text())
    assert memory is not None
    assert int(memory[1]) << 10 <= MEMORY_BYTES_MAX
    world.operator.lead()
