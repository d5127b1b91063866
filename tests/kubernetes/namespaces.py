"""A namespace of its own for a test, or for a module of tests."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager

from kubernetes import client

from rekindle_local import process_sets
from testbed.control_plane import ControlPlane

__all__ = ["new_namespace"]

WAIT_SECONDS_MAX = 180.0


@contextmanager
def new_namespace(control_plane: ControlPlane) -> Iterator[str]:
    """A new namespace in which pods can be made, in a control plane that is whole before and after;
    it and all in it go."""
    control_plane.restore()
    name = f"test-{secrets.token_hex(4)}"
    with control_plane.api_client() as api_client:
        core = client.CoreV1Api(api_client)
        core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name=name)))
        there = process_sets.await_condition(
            lambda: bool(core.list_namespaced_service_account(name).items),
            limit_seconds=WAIT_SECONDS_MAX,
        )
        assert there
        try:
            yield name
        finally:
            control_plane.restore()
            core.delete_namespace(name)
