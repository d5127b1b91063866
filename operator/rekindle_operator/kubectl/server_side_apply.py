"""Server-side apply of a part of a policy, again when somebody else has changed it meanwhile.

What to apply is decided anew from each reading, by whoever calls.
"""

from collections.abc import Callable

from rekindle.model.errors import RunError
from rekindle_operator.kubectl.api_connection import ApiConnection, Object
from rekindle_operator.kubectl.api_errors import ApiRefusal
from rekindle_operator.kubectl.resource_kinds import POLICIES

TRIES = 5


def apply(
    cluster: ApiConnection,
    record: Object,
    manager: str,
    change: Callable[[Object], Object],
    *,
    force: bool = False,
) -> Object:
    """The policy after `change(policy)` has been applied under a field manager.

    Raises Refusal with the managers that have a field of it, unless `force` takes it from them.
    """
    for _ in range(TRIES):
        try:
            return cluster.apply(POLICIES, change(record), manager, force=force)
        except ApiRefusal as refusal:
            if refusal.status != 409 or refusal.managers:
                raise
        metadata = record["metadata"]
        record = cluster.get(POLICIES, metadata["name"], metadata["namespace"])
    raise RunError(
        where=POLICIES.place(record["metadata"]["namespace"], record["metadata"]["name"]),
        what=f"has changed {TRIES} times while it was being changed",
        remedy="try again",
    )
