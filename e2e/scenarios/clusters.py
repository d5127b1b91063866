"""The cluster under a scenario: one of our own, or one that a kube context names.

Our own is testbed's, of real kubelets on this machine. Of the other, for example kind's, scenarios
take nodes that bear no label of theirs, and lose them by the commands that it offers; they give
back what they have changed. `site` takes either.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from kubernetes import client, config

from rekindle.errors import InputError
from rekindle_local import processes
from scenarios import afterwards
from scenarios.flights import ROLE
from scenarios.means import Means
from testbed import access
from testbed.bodies import ZONE
from testbed.cluster.configuration import NodeSpec

__all__ = ["CONTEXT", "Cluster", "GivenCluster"]

CONTEXT, SHARED = "REKINDLE_E2E_CONTEXT", "REKINDLE_E2E_SHARED"
MARKS = ("node.cloudprovider.kubernetes.io/shutdown", "node.kubernetes.io/out-of-service")
CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
READY_SECONDS_MAX = 300.0
LOOK_SECONDS = 1.0


class Cluster(Protocol):
    """Nodes that can be added and lost; a context manager, inside of which it is there.

    `shared` is a folder that this machine and all nodes have at the same place; `names` are the
    nodes that were added and are not lost; `kubeconfig` is an administrator's.
    """

    @property
    def shared(self) -> Path: ...

    @property
    def names(self) -> tuple[str, ...]: ...

    @property
    def kubeconfig(self) -> Path: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def add(self, count: int, spec: NodeSpec, *, zones: Sequence[str] = ...) -> tuple[str, ...]: ...

    def kill(self, *names: str) -> None: ...

    def cut(self, *names: str) -> None: ...

    def heal(self, *names: str) -> None: ...

    def is_alive(self, *names: str) -> bool: ...

    def stop_kubelet(self, *names: str) -> None: ...

    def start_kubelet(self, *names: str) -> None: ...


class GivenCluster:
    """The cluster of a kube context. `shared` is named by `REKINDLE_E2E_SHARED`; a file that
    `REKINDLE_E2E_MEANS` names says by which commands nodes are lost where it is not kind's.
    `kubectl` is the program; it reads the kubeconfig that the context is of."""

    def __init__(
        self, context: str, directory: Path, environment: Mapping[str, str], kubectl: Path
    ) -> None:
        self._context = context
        self._directory = directory
        self._kubectl = kubectl
        self._means = Means(environment)
        self._shared = _shared(environment)
        self._names: list[str] = []
        self._killed: list[str] = []
        self._before: dict[str, dict[str, str | None]] = {}

    @property
    def shared(self) -> Path:
        """A folder for this run alone, below the one that was named."""
        return self._shared / f"rekindle-e2e-{os.getpid()}"

    @property
    def names(self) -> tuple[str, ...]:
        """The nodes that were taken and are not lost."""
        return tuple(self._names)

    @property
    def kubeconfig(self) -> Path:
        """The context alone, for programs that are told a file."""
        return self._directory / "kubeconfig.yaml"

    def __enter__(self) -> Self:
        self._check_context()
        self._directory.mkdir(parents=True, exist_ok=True)
        with ExitStack() as held:
            held.callback(self.kubeconfig.unlink, missing_ok=True)  # reports are shown to others
            self._write_context()
            self.shared.mkdir(exist_ok=True)
            held.callback(shutil.rmtree, self.shared, ignore_errors=True)
            api_client: Any = access.make_client(self.kubeconfig)
            held.callback(api_client.close)
            self._core: Any = client.CoreV1Api(api_client)
            held.callback(self._give_back)
            self._held = held.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._held.close()

    def add(self, count: int, spec: NodeSpec, *, zones: Sequence[str] = ("",)) -> tuple[str, ...]:
        """Take nodes that nobody has taken. Raises `InputError` where there are too few, also after
        a while: those that were lost before may be starting."""
        processes.await_condition(
            lambda: len(self._free()) >= count,
            limit_seconds=READY_SECONDS_MAX,
            interval_seconds=LOOK_SECONDS,
        )
        free = self._free()
        if len(free) < count:
            raise _refusal(
                f"has {len(free)} free nodes where {count} are wanted",
                "make a cluster of more nodes, or wait for a scenario that uses them",
            )
        taken = tuple(node.metadata.name for node in free[:count])
        for turn, node in enumerate(free[:count]):
            labels = {**spec.labels, ZONE: zones[turn % len(zones)]}
            there = node.metadata.labels or {}
            self._before[node.metadata.name] = {name: there.get(name) for name in labels}
            self._core.patch_node(node.metadata.name, {"metadata": {"labels": labels}})
        self._names += taken
        return taken

    def kill(self, *names: str) -> None:
        """Machines die, until they are given back."""
        self._means.do("kill", names)
        self._killed += names
        self._names = [name for name in self._names if name not in names]

    def cut(self, *names: str) -> None:
        """Nobody reaches these nodes any more; they live on."""
        self._means.do("cut", names)

    def heal(self, *names: str) -> None:
        """They are reached again."""
        self._means.do("heal", names)

    def is_alive(self, *names: str) -> bool:
        """Whether the command that asks says so of each."""
        return all(self._means.says("is_alive", name) for name in names)

    def stop_kubelet(self, *names: str) -> None:
        """Kubelets stop, pods go on."""
        self._means.do("stop_kubelet", names)

    def start_kubelet(self, *names: str) -> None:
        """Kubelets go on."""
        self._means.do("start_kubelet", names)

    def _check_context(self) -> None:
        try:
            list_contexts: Any = config.list_kube_config_contexts
            contexts, _ = list_contexts()
        except config.ConfigException as error:
            raise _refusal(f"cannot be looked up: {error}", "set KUBECONFIG") from error
        if self._context not in {one["name"] for one in contexts}:
            raise _refusal(
                "names no context of the kubeconfig", "see `kubectl config get-contexts`"
            )

    def _write_context(self) -> None:
        """The kubeconfig of one context, whole, as kubectl prints it."""
        view = ("config", "view", "--raw", "--flatten", "--minify", f"--context={self._context}")
        command = [str(self._kubectl), *view]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise _refusal(done.stderr.strip() or "kubectl fails", "see `kubectl config view`")
        self.kubeconfig.touch(mode=0o600)
        self.kubeconfig.write_text(done.stdout, encoding="utf-8")

    def _free(self) -> list[Any]:
        return [node for node in self._core.list_node().items if _is_free(node)]

    def _give_back(self) -> None:
        for name, labels in self._before.items():
            afterwards.attempt(f"give {name} back", partial(self._give_back_node, name, labels))

    def _give_back_node(self, name: str, labels: Mapping[str, str | None]) -> None:
        """A node as it was: on, its labels, without the marks of one that is off, and in use."""
        if name in self._killed:
            self._means.do("revive", [name])
        taints = [
            taint
            for taint in self._core.read_node(name).to_dict()["spec"]["taints"] or ()
            if taint["key"] not in MARKS
        ]
        kept = [{key: taint[key] for key in ("key", "value", "effect")} for taint in taints]
        spec = {"unschedulable": None, "taints": kept}
        self._core.patch_node(name, {"metadata": {"labels": dict(labels)}, "spec": spec})


def _is_free(node: Any) -> bool:
    """Whether a node is Ready, none of the control plane, and has no role in a scenario."""
    labels = node.metadata.labels or {}
    ready = {one.type: one.status for one in node.status.conditions or ()}.get("Ready")
    return ready == "True" and ROLE not in labels and CONTROL_PLANE not in labels


def _shared(environment: Mapping[str, str]) -> Path:
    named = environment.get(SHARED, "")
    if not Path(named).is_absolute() or not Path(named).is_dir():
        raise InputError(
            where=f"{SHARED}={named}",
            what="is no folder",
            remedy="name one that all nodes have at the same place, as kind's extraMounts give it",
        )
    return Path(named)


def _refusal(what: str, remedy: str) -> InputError:
    return InputError(where=f"{CONTEXT}={os.environ.get(CONTEXT, '')}", what=what, remedy=remedy)
