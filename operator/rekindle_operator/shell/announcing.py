"""Announcements written as Events, each once: what was told before is refused by its name.

What is announced is `announcements`' to say. Runs in errands of `storytelling` and `statuses`.
"""

from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime

from rekindle_operator import announcements
from rekindle_operator.announcements import Announcement
from rekindle_operator.shell import kinds
from rekindle_operator.shell.api import Api, Conflict, path_of

__all__ = ["announce"]

CONTROLLER = "rekindle.dev/operator"


def announce(api: Api, told: Iterable[Announcement], identity: str) -> None:
    """Make the Events; `identity` is the pod that tells them."""
    for item in told:
        body = announcements.to_object(
            item, datetime.now(UTC), controller=CONTROLLER, instance=identity
        )
        with suppress(Conflict):  # it was told before
            api.create(path_of(kinds.EVENTS, body["metadata"]["namespace"]), body)
