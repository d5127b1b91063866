"""The command `rekindle-release-gates`: no pod waits at our gate any more, and none will.

    turns.rekindle.dev taken out of the configuration ──► gates lifted, list by list
                                                           ──► none was there for `SETTLED_SECONDS`

The chart runs it in a Job before it is uninstalled. In this order, because a gate that is added
after the last look stays: nobody would be left to lift it. While the operator acts it renews its
record, so to delete the record stops nothing. Without its entry in the configuration the API server
does not ask the webhook, whatever the record says. Each API server takes up the new configuration a
moment later, and a pod may be on its way, so the lists have to stay empty for a while.

A pod of which a change is refused keeps no other waiting. Exit codes: 0 no pod waits, 1 some do, or
the API server could not be asked, 2 wrong usage.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from rekindle.model.errors import RunError
from rekindle_coordinator.json_lines import JsonLineLog
from rekindle_operator import process_command
from rekindle_operator.cluster import api_client, object_kinds
from rekindle_operator.cluster.api_client import (
    NOT_FOUND,
    STRATEGIC_MERGE,
    Api,
    ApiRefused,
    ApiUnreachable,
    Body,
    ObjectConflict,
    path_of,
)
from rekindle_operator.cluster.pods import has_gate, without_gate
from rekindle_operator.process_command import PREFIX, Kubeconfig, LogFile
from rekindle_operator.webhook import certificate_store
from rekindle_operator.webhook.webhook_configuration import TURNS

PROGRAM = "rekindle-release-gates"
# API servers know of a new configuration within a second or two, and the webhook of a pod on its
# way has two seconds for its answer.
SETTLED_SECONDS = 10.0
LOOK_SECONDS = 1.0
# A pod with a gate is Pending, whatever its labels are.
PENDING = "status.phase=Pending"
REMEDY = (
    "nothing is uninstalled: run `helm uninstall` again with --no-hooks, and then "
    "`kubectl rekindle release --all --all-namespaces`"
)


@dataclass(slots=True)
class GateRelease:
    """`configuration` is the name of the MutatingWebhookConfiguration; `clock` is in seconds, and
    `pause` waits for so many."""

    api: Api
    configuration: str
    log: JsonLineLog
    clock: Callable[[], float] = time.monotonic
    pause: Callable[[float], None] = time.sleep
    lifted: int = 0
    # whether the API server asks the webhook no more
    _is_taken_out: bool = False
    # pods that keep their gate (namespace/name), and why
    _kept: dict[str, str] = field(default_factory=dict)

    def run(self, within_seconds: float) -> None:
        """Return once no pod waits. RunError where some pods still do after so many seconds, or
        the API server has refused or not answered until then."""
        ends_at = self.clock() + within_seconds
        empty_since: float | None = None
        while True:
            trouble = self._pass()
            now = self.clock()
            if trouble is not None:
                empty_since = None
            elif empty_since is None:
                empty_since = now
            if empty_since is not None and now - empty_since >= SETTLED_SECONDS:
                self.log.write("released", pods=self.lifted)
                return
            if now >= ends_at:
                raise trouble or self._of_pods()
            self.pause(LOOK_SECONDS)

    def _pass(self) -> RunError | None:
        """See that no pod gets a gate, and lift those that are there; None where there was none.
        Refusals may be over soon: rights that were given a moment ago are not known at once."""
        self._kept = {}
        try:
            if not self._is_taken_out:
                self._take_out()
            found = [*map(self._lift, self._gated())]
        except (ApiUnreachable, ApiRefused) as error:
            self.log.write("tried-again", text=f"{error.where}: {error.what}")
            return RunError(where=error.where, what=error.what, remedy=REMEDY)
        return self._of_pods() if found else None

    def _take_out(self) -> None:
        """Have the API server ask about no pod any more whether it waits."""
        path = f"{certificate_store.CONFIGURATIONS}/{self.configuration}"
        change = {"webhooks": [{"name": TURNS, "$patch": "delete"}]}
        try:
            self.api.patch(path, change, STRATEGIC_MERGE)
        except ApiRefused as refused:
            if refused.status != NOT_FOUND:
                raise
        self._is_taken_out = True
        self.log.write("no-gates-from-now-on", configuration=self.configuration)

    def _gated(self) -> Iterator[Body]:
        """Pods of all namespaces that have our gate."""
        for page, _ in self.api.pages(path_of(object_kinds.PODS), fieldSelector=PENDING):
            for pod in page["items"]:
                if has_gate(pod["spec"].get("schedulingGates")):
                    yield pod

    def _lift(self, pod: Body) -> None:
        metadata = pod["metadata"]
        namespace, name = metadata["namespace"], metadata["name"]
        path = path_of(object_kinds.PODS, namespace, name)
        try:
            self.api.patch(path, without_gate(metadata["uid"]), STRATEGIC_MERGE)
        except ObjectConflict as conflict:  # it has changed, or is another one: the next list says
            self._kept[f"{namespace}/{name}"] = conflict.what
        except ApiRefused as refused:
            if refused.status != NOT_FOUND:
                self._kept[f"{namespace}/{name}"] = refused.message
        else:
            self.lifted += 1
            self.log.write("gate-lifted", pod=name, namespace=namespace)

    def _of_pods(self) -> RunError:
        """What is wrong while there are pods with our gate, or were a moment ago."""
        first, why = min(self._kept.items(), default=("", ""))
        if not first:
            what = "pods with ours have come until the last moment"
            return RunError(where="scheduling gates", what=what, remedy=REMEDY)
        more = len(self._kept) - 1
        others = f" and {more} more" if more else ""
        what = f"our scheduling gate cannot be lifted ({why})"
        return RunError(where=f"pod {first}{others}", what=what, remedy=REMEDY)


Configuration = Annotated[
    str,
    typer.Option(
        envvar=f"{PREFIX}WEBHOOK_CONFIGURATION", help="The MutatingWebhookConfiguration's name."
    ),
]
WithinSeconds = Annotated[
    float,
    typer.Option(
        envvar=f"{PREFIX}WITHIN_SECONDS", min=1, max=3600, help="How long to try at most."
    ),
]


def release_gates(
    webhook_configuration: Configuration = "rekindle",
    within_seconds: WithinSeconds = 120.0,
    kubeconfig: Kubeconfig = None,
    log: LogFile = None,
) -> None:
    """Let all pods of the cluster run that wait for their turn, and have no further ones wait.

    The chart calls it before it is uninstalled. Scheduling gates of others stay.

    Example: rekindle-release-gates --within-seconds 60 --kubeconfig ~/.kube/config
    """
    with ExitStack() as stack:
        lines = JsonLineLog(process_command.opened(log, stack))
        client = stack.enter_context(api_client.connect(_text(kubeconfig), connections=1))
        GateRelease(Api(client), webhook_configuration, lines).run(within_seconds)


def _text(kubeconfig: Path | None) -> str | None:
    return None if kubeconfig is None else str(kubeconfig)


def main() -> None:
    """Runs the command; exits."""
    process_command.run(PROGRAM, release_gates)
