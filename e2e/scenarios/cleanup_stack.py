"""What is done at the end of a scenario, however it has ended: one thing after the other.

`node_commands`, `scenario_clusters` and `cluster_setup` give back by it what they have changed.
"""

from collections.abc import Callable
from http import HTTPStatus

from testbed import test_programs


def attempt(what: str, action: Callable[[], object]) -> None:
    """Do something, `what` in words; a failure is said, as the rest is to be done all the same.

    What is not there any more is no matter.
    """
    try:
        action()
    except Exception as error:
        if getattr(error, "status", None) != HTTPStatus.NOT_FOUND:
            test_programs.say(f"could not {what}: {str(error) or repr(error)}")
