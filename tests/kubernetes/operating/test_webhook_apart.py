"""Webhook and operator do without each other: either is killed, and the other one goes on."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from operating_world import World, await_that
from operator_process import WebhookProcess

# The limit of the webhook's container in the chart.
MEMORY_BYTES_MAX = 128 << 20


@pytest.fixture
def killed(webhook: WebhookProcess) -> Iterator[WebhookProcess]:
    """A webhook that a test may kill; it runs again afterwards."""
    yield webhook
    if webhook.ended:
        webhook.start()


@pytest.mark.usefixtures("asking")
def test_the_webhook_is_killed_and_the_operator_leads_on(
    world: World, killed: WebhookProcess
) -> None:
    """Pods are made all the same, without a sidecar, and a loss is planned for."""
    world.start(zones=("a", "b"), driver={"inject": True})
    assert world.has_sidecar("others")
    killed.kill()
    assert not world.has_sidecar("others")
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
    assert world.has_sidecar("others")
    assert world.has_sidecar("others")
    memory = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{webhook.process_id}/status").read_text())
    assert memory is not None
    assert int(memory[1]) << 10 <= MEMORY_BYTES_MAX
    world.operator.lead()
