"""The command `rekindle-release-gates`: no pod waits at our gate any more, and none will.

    turns.rekindle.dev taken out of the configuration ──► gates lifted, list by list
                                                           ──► none was there for `SETTLED_SECONDS`

The chart runs it in a Job before it is uninstalled. In this order, because a gate that is added
after the last look stays: nobody would be left to lift it. While the operator acts it renews its
record, so to delete the record stops nothing. Without its entry in the configuration the API server
does not ask the webhook, whatever the record says. Each API server takes up the new configuration a
moment later, and a pod may be on its way, so the lists have to stay empty for a while. Where the
configuration may not be changed, gates are lifted all the same, and the command fails.

`helm template | kubectl apply` and tools that do the same make hooks with all else, so that the
Job runs at an installation. Helm marks what it installs (`OF_HELM`), and its Job is told to do
nothing where the configuration has no such mark.

A pod of which a change is refused keeps no other waiting. Exit codes: 0 no pod waits, or there was
nothing to do, 1 some do, or the API server could not be asked, 2 wrong usage.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

import typer

from rekindle.model.errors import RunError
from rekindle_coordinator.json_lines import JsonLineLog
from rekindle_operator import process_command
from rekindle_operator.cluster import api_client, object_kinds
from rekindle_operator.cluster.api_client import (
    CONFLICT,
    NOT_FOUND,
    STRATEGIC_MERGE,
    Api,
    ApiRefused,
    ApiUnreachable,
    Body,
    ObjectConflict,
    path_of,
)
from rekindle_operator.gates import waiting_pods
from rekindle_operator.process_command import PREFIX, Kubeconfig, LogFile
from rekindle_operator.webhook import certificate_store
from rekindle_operator.webhook.webhook_configuration import TURNS

PROGRAM = "rekindle-release-gates"
# API servers know of a new configuration within a second or two, and the webhook of a pod on its
# way has two seconds for its answer.
SETTLED_SECONDS = 10.0
LOOK_SECONDS = 3.0
# A whole pod takes some 10 kB, and the command has little memory.
PAGE_ITEMS = 100
# Helm gives it to all objects of a release but hooks.
OF_HELM = "meta.helm.sh/release-name"
REMEDY = (
    "nothing is uninstalled: run `helm uninstall` again with --no-hooks, and then "
    "`kubectl rekindle release --all --all-namespaces`"
)


@dataclass(slots=True)
class GateRelease:
    """`configuration` is the name of the MutatingWebhookConfiguration. With `helm_only` nothing is
    done where Helm has not made it. `clock` is in seconds, and `pause` waits for so many."""

    api: Api
    configuration: str
    log: JsonLineLog
    helm_only: bool = False
    clock: Callable[[], float] = time.monotonic
    pause: Callable[[float], None] = time.sleep
    lifted: int = 0
    # whether the API server asks the webhook no more
    _webhook_removed: bool = False
    # pods that keep their gate (namespace/name), and why
    _refused: dict[str, str] = field(default_factory=dict)

    def run(self, timeout_seconds: float) -> None:
        """Return once no pod waits. RunError where some pods still do after so many seconds, or
        the API server has refused or not answered until then."""
        ends_at = self.clock() + timeout_seconds
        empty_since: float | None = None
        while True:
            error = self._pass()
            now = self.clock()
            if error is None and not self._webhook_removed:
                self.log.write("left-alone", text=f"{self.configuration} is not of Helm")
                return
            if error is not None:
                empty_since = None
            elif empty_since is None:
                empty_since = now
            if empty_since is not None and now - empty_since >= SETTLED_SECONDS:
                self.log.write("released", pods=self.lifted)
                return
            if now >= ends_at:
                raise error or self._of_pods()
            self.pause(min(LOOK_SECONDS, ends_at - now))

    def _pass(self) -> RunError | None:
        """See that no pod gets a gate, and lift those that are there; None where there was none.
        Refusals may be over soon: rights that were given a moment ago are not known at once."""
        self._refused = {}
        refusal: RunError | None = None
        try:
            if not self._webhook_removed:
                if self.helm_only and not self._is_of_helm():
                    return None
                refusal = self._remove_webhook()
            had_pods = self._lift()
        except (ApiUnreachable, ApiRefused) as error:
            return refusal or self._noted(error)
        return refusal or (self._of_pods() if had_pods else None)

    def _noted(self, error: RunError) -> RunError:
        self.log.write("tried-again", text=f"{error.where}: {error.what}")
        return RunError(where=error.where, what=error.what, remedy=REMEDY)

    def _is_of_helm(self) -> bool:
        """Whether Helm has made the configuration; also where there is none, so that an uninstall
        lifts gates that are left."""
        found = self.api.get(self._path)
        return found is None or OF_HELM in (found["metadata"].get("annotations") or {})

    def _remove_webhook(self) -> RunError | None:
        """Have the API server ask about no pod any more whether it waits; what was refused."""
        change = {"webhooks": [{"name": TURNS, "$patch": "delete"}]}
        try:
            self.api.patch(self._path, change, STRATEGIC_MERGE)
        except ObjectConflict as conflict:
            return self._noted(conflict)
        except ApiRefused as refused:
            if refused.status != NOT_FOUND:
                return self._noted(refused)
        self._webhook_removed = True
        self.log.write("no-gates-from-now-on", configuration=self.configuration)
        return None

    @property
    def _path(self) -> str:
        return f"{certificate_store.CONFIGURATIONS}/{self.configuration}"

    def _lift(self) -> bool:
        """Lift our gate from all pods of the cluster; whether some pod had it."""
        found = waiting_pods.lift(waiting_pods.waiting(self._pending()), self._patch)
        # what has changed, or is another pod by now, is in the next list
        for pod, why in (*found.changed, *found.refused):
            metadata = pod["metadata"]
            self._refused[f"{metadata['namespace']}/{metadata['name']}"] = why
        return bool(found.lifted or self._refused)

    def _pending(self) -> Iterator[Body]:
        pages = self.api.pages(path_of(object_kinds.PODS), fieldSelector=waiting_pods.PENDING)
        for page, _ in pages:
            yield from page["items"]

    def _patch(self, namespace: str, name: str, change: Body) -> tuple[int, str] | None:
        path = path_of(object_kinds.PODS, namespace, name)
        try:
            self.api.patch(path, change, STRATEGIC_MERGE)
        except ObjectConflict as conflict:
            return CONFLICT, conflict.what
        except ApiRefused as refused:
            return refused.status, refused.message
        self.lifted += 1
        self.log.write("gate-lifted", pod=name, namespace=namespace)
        return None

    def _of_pods(self) -> RunError:
        """What is wrong while there are pods with our gate, or were a moment ago."""
        first, why = min(self._refused.items(), default=("", ""))
        if not first:
            what = "pods with ours have come until the last moment"
            return RunError(where="scheduling gates", what=what, remedy=REMEDY)
        more = len(self._refused) - 1
        others = f" and {more} more" if more else ""
        what = f"our scheduling gate cannot be lifted ({why})"
        return RunError(where=f"pod {first}{others}", what=what, remedy=REMEDY)


Configuration = Annotated[
    str,
    typer.Option(
        envvar=f"{PREFIX}WEBHOOK_CONFIGURATION", help="The MutatingWebhookConfiguration's name."
    ),
]
HelmOnly = Annotated[
    bool,
    typer.Option("--helm-only", help="Do nothing where Helm has not made that configuration."),
]
TimeoutSeconds = Annotated[
    float,
    typer.Option(
        envvar=f"{PREFIX}TIMEOUT_SECONDS", min=1, max=3600, help="How long to try at most."
    ),
]


def release_gates(
    webhook_configuration: Configuration = "rekindle",
    helm_only: HelmOnly = False,
    timeout_seconds: TimeoutSeconds = 120.0,
    kubeconfig: Kubeconfig = None,
    log: LogFile = None,
) -> None:
    """Let all pods of the cluster run that wait for their turn, and have no further ones wait.

    The chart calls it before it is uninstalled. Scheduling gates of others stay.

    Example: rekindle-release-gates --timeout-seconds 60 --kubeconfig ~/.kube/config
    """
    with ExitStack() as stack:
        lines = JsonLineLog(process_command.opened(log, stack))
        client = stack.enter_context(api_client.connect(_text(kubeconfig), connections=1))
        api = replace(Api(client), page_items=PAGE_ITEMS)
        GateRelease(api, webhook_configuration, lines, helm_only).run(timeout_seconds)


def _text(kubeconfig: Path | None) -> str | None:
    return None if kubeconfig is None else str(kubeconfig)


def main() -> None:
    """Runs the command; exits."""
    process_command.run(PROGRAM, release_gates)
