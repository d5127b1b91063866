"""The cluster under a scenario: one of our own, or one that a kube context names.

Our own is testbed's, of real kubelets on this machine. Of the other, for example kind's, scenarios
take nodes that take pods and bear no label of theirs, and lose them by the commands that it offers;
they give back what they have changed. `cluster_setup` takes either.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol, Self

from kubernetes import client

from rekindle.model.errors import InputError, RunError
from rekindle_local import process_sets
from scenarios import cleanup_stack, kube_contexts
from scenarios.flights_application import ROLE
from scenarios.kube_contexts import Context
from scenarios.node_commands import Means
from testbed import kubeconfigs
from testbed.cluster.node_configuration import NodeSpec
from testbed.node_objects import ZONE

SHARED = "REKINDLE_E2E_SHARED"
SHUTDOWN = "node.cloudprovider.kubernetes.io/shutdown"
MARKS = (SHUTDOWN, "node.kubernetes.io/out-of-service")
CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
READY_SECONDS_MAX = 300.0
LOOK_SECONDS = 1.0


class ScenarioCluster(Protocol):
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

    def __exit__(self, *_: object) -> None: ...

    def add(self, count: int, spec: NodeSpec, *, zones: Sequence[str] = ...) -> tuple[str, ...]: ...

    def kill(self, *names: str) -> None: ...

    def cut(self, *names: str) -> None: ...

    def heal(self, *names: str) -> None: ...

    def is_alive(self, *names: str) -> bool: ...

    def stop_kubelet(self, *names: str) -> None: ...

    def start_kubelet(self, *names: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Taken:
    """The labels of a node before it was taken, and the names of those that it was given."""

    before: Mapping[str, str]
    given: frozenset[str]

    def labels(self, now: Mapping[str, str]) -> dict[str, str | None]:
        """What they have to become: those that it was given as they were, and others where they are
        gone, as from a node that was deleted and has come again."""
        return {**self.before, **now, **{name: self.before.get(name) for name in self.given}}


class GivenCluster:
    """The cluster of a kube context. `shared` is named by `REKINDLE_E2E_SHARED`; a file that
    `REKINDLE_E2E_MEANS` names says by which commands nodes are lost where it is not kind's.
    `kubectl` is the program; it reads the kubeconfig that the context is of. `images` are those
    that its nodes must have, by the names that pods know; the second name tells what is in it."""

    def __init__(
        self,
        context: str,
        directory: Path,
        environment: Mapping[str, str],
        *,
        kubectl: Path,
        images: Mapping[str, str],
    ) -> None:
        self._name = context
        self._environment = environment
        self._directory = directory
        self._kubectl = kubectl
        self._images = images
        self._means = Means(environment)
        self._shared = shared_folder(environment)
        self._names: list[str] = []
        self._taken: dict[str, Taken] = {}

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
        context = kube_contexts.find(self._name, self._environment)
        self._directory.mkdir(parents=True, exist_ok=True)
        with ExitStack() as held:
            held.callback(self.kubeconfig.unlink, missing_ok=True)  # reports are shown to others
            self._write_context()
            self.shared.mkdir(exist_ok=True)
            held.callback(shutil.rmtree, self.shared, ignore_errors=True)
            api_client: Any = kubeconfigs.make_client(self.kubeconfig)
            held.callback(api_client.close)
            self._core: Any = client.CoreV1Api(api_client)
            self._check_images(context)
            held.callback(self._give_back)
            self._held = held.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    def add(self, count: int, spec: NodeSpec, *, zones: Sequence[str] = ("",)) -> tuple[str, ...]:
        """Take nodes that nobody has taken. Raises `InputError` where there are too few, also after
        a while: those that were lost before may be starting."""
        process_sets.await_condition(
            lambda: len(self._free()) >= count,
            limit_seconds=READY_SECONDS_MAX,
            interval_seconds=LOOK_SECONDS,
        )
        free = self._free()
        if len(free) < count:
            raise self._refusal(
                f"has {len(free)} free nodes where {count} are wanted", self._remedy_for_more()
            )
        taken = tuple(node.metadata.name for node in free[:count])
        for turn, node in enumerate(free[:count]):
            labels = {**spec.labels, ZONE: zones[turn % len(zones)]}
            before = node.metadata.labels or {}
            self._taken[node.metadata.name] = Taken(before, frozenset(labels))
            self._core.patch_node(node.metadata.name, {"metadata": {"labels": labels}})
        self._names += taken
        return taken

    def kill(self, *names: str) -> None:
        """Machines die, until they are revived."""
        self._means.do("kill", names)
        self._names = [name for name in self._names if name not in names]

    def revive(self) -> None:
        """All nodes are on, reached, and work again. Raises `RunError` where some are not Ready."""
        nodes = set(self._means.undo())
        if nodes and not process_sets.await_condition(
            lambda: nodes <= self._ready(),
            limit_seconds=READY_SECONDS_MAX,
            interval_seconds=LOOK_SECONDS,
        ):
            raise RunError(
                where=", ".join(sorted(nodes - self._ready())),
                what=f"not Ready within {READY_SECONDS_MAX:.0f} s of being brought back",
                remedy="see these machines",
            )

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

    def _write_context(self) -> None:
        """The kubeconfig of one context, whole, as kubectl prints it."""
        view = ("config", "view", "--raw", "--flatten", "--minify", f"--context={self._name}")
        command = [str(self._kubectl), *view]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            said = done.stderr.strip() or "kubectl fails"
            raise self._refusal(said, "see `kubectl config view`")
        self.kubeconfig.touch(mode=0o600)
        self.kubeconfig.write_text(done.stdout, encoding="utf-8")

    def _check_images(self, context: Context) -> None:
        """A name that stays while its content changes may be an older image's on some nodes."""
        with context.explained():
            free = self._free() if self._images else []
        for name, mark in self._images.items():
            without = [node.metadata.name for node in free if not _has(node, {name, mark})]
            if without:
                raise self._refusal(
                    f"has another image than {mark} as {name}, or none, on {', '.join(without)}",
                    "load it by both names, as docs/e2e.md shows, and give the nodes a minute",
                )

    def _remedy_for_more(self) -> str:
        """More nodes; or those that have a role and are none of ours: a run that was killed has
        left them so, or one that goes on has them."""
        nodes = self._core.list_node().items
        others = [
            node.metadata.name
            for node in nodes
            if ROLE in (node.metadata.labels or {}) and node.metadata.name not in self._taken
        ]
        remedy = "make a cluster of more nodes"
        if others:
            command = f"kubectl --context {self._name} label nodes {' '.join(others)} {ROLE}-"
            remedy += f", or, if no scenario runs there, free those of a killed one by `{command}`"
        return remedy

    def _free(self) -> list[Any]:
        return [node for node in self._core.list_node().items if _is_free(node)]

    def _ready(self) -> set[str]:
        return {node.metadata.name for node in self._core.list_node().items if is_ready(node)}

    def _refusal(self, what: str, remedy: str) -> InputError:
        return kube_contexts.refusal(self._name, what, remedy)

    def _give_back(self) -> None:
        cleanup_stack.attempt("bring nodes back", self.revive)
        for name in self._taken:
            cleanup_stack.attempt(f"give {name} back", partial(self._give_back_node, name))

    def _give_back_node(self, name: str) -> None:
        """A node as it was: its labels, without the marks of one that is off, and in use."""
        node = self._core.read_node(name)
        labels = self._taken[name].labels(node.metadata.labels or {})
        taints = [
            taint for taint in node.to_dict()["spec"]["taints"] or () if taint["key"] not in MARKS
        ]
        kept = [{key: taint[key] for key in ("key", "value", "effect")} for taint in taints]
        spec = {"unschedulable": None, "taints": kept}
        self._core.patch_node(name, {"metadata": {"labels": labels}, "spec": spec})


def _is_free(node: Any) -> bool:
    """Whether a node is Ready, takes pods, is none of the control plane, and has no role yet."""
    labels = node.metadata.labels or {}
    named = ROLE in labels or CONTROL_PLANE in labels
    return is_ready(node) and not node.spec.unschedulable and not named


def is_ready(node: Any) -> bool:
    """Whether its cluster takes a Node for Ready."""
    conditions = node.status.conditions or ()
    return any(one.type == "Ready" and one.status == "True" for one in conditions)


def _has(node: Any, names: set[str]) -> bool:
    """Whether there is an image on a node that goes by all these names."""
    return any(names <= set(image.names or ()) for image in node.status.images or ())


def shared_folder(environment: Mapping[str, str]) -> Path:
    """The folder that a given cluster shares with us. Raises `InputError` for what cannot be it."""
    named = environment.get(SHARED, "")
    folder = Path(named)
    what, remedy = "", "name one that all nodes have at the same place, as kind's extraMounts do"
    if not named:
        what = "is not set, and has to name a folder"
    elif not folder.is_absolute():
        what, remedy = "is not absolute", "give the whole path, from / on"
    elif not os.path.isdir(folder):
        what = "is no folder"
    elif not os.access(folder, os.W_OK | os.X_OK):
        what, remedy = "cannot be written", "let this user write there, or name another folder"
    if what:
        raise InputError(where=f"{SHARED}={named}", what=what, remedy=remedy)
    return folder
