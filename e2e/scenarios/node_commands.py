"""The commands by which nodes of a given cluster are lost, and come back.

Kind's, unless a file that `REKINDLE_E2E_MEANS` names has others. What they have done to nodes is
known until it is undone. `scenario_clusters` has them run.
"""

import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import yaml

from rekindle.model.errors import InputError, RunError
from scenarios import cleanup_stack
from testbed import program_runs

MEANS = "REKINDLE_E2E_MEANS"
# As kind has its nodes: containers of docker, in a network of that name.
KIND: Mapping[str, str] = {
    "kill": "docker kill {node}",
    "revive": "docker start {node}",
    "cut": "docker network disconnect kind {node}",
    "heal": "docker network connect kind {node}",
    "is_alive": "docker exec {node} pgrep java",
    "stop_kubelet": "docker exec {node} systemctl stop kubelet",
    "start_kubelet": "docker exec {node} systemctl start kubelet",
}
# In the order in which nodes are brought back: programs are asked for on machines that are on.
UNDONE_BY = {"kill": "revive", "cut": "heal", "stop_kubelet": "start_kubelet"}
COMMAND_SECONDS_MAX = 60
NODE = "{node}"


class Means:
    """Commands by their names in `KIND`. Raises `InputError` for a file that does not give them."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._commands = _commands(environment)
        self._harmed: dict[str, set[str]] = {harm: set() for harm in UNDONE_BY}

    def do(self, what: str, names: Sequence[str]) -> None:
        """To all these nodes at once. Raises `RunError` when a command fails."""
        if what in UNDONE_BY:
            self._harmed[what].update(names)  # first: a command may have harm done, and then fail
        with ThreadPoolExecutor(max_workers=max(len(names), 1)) as pool:
            done = list(pool.map(partial(self._run, what), names))
        self._forget(
            what, {name for name, one in zip(names, done, strict=True) if one.returncode == 0}
        )
        for one in done:
            if one.returncode != 0:
                lines = (one.stderr.strip() or f"exit code {one.returncode}").splitlines()
                raise RunError(
                    where=shlex.join(one.args),
                    what=lines[-1],
                    remedy=f"see whether this is how the cluster loses nodes; {MEANS} names "
                    "a file with other commands",
                )

    def undo(self) -> list[str]:
        """Bring back what is not back yet; these nodes. What cannot be is said."""
        nodes = sorted(set().union(*self._harmed.values()))
        for harm, undoing in UNDONE_BY.items():
            for name in sorted(self._harmed[harm]):
                cleanup_stack.attempt(f"bring {name} back", partial(self.do, undoing, [name]))
            self._harmed[harm].clear()
        return nodes

    def says(self, what: str, name: str) -> bool:
        """Whether a command that asks about a node succeeds."""
        return self._run(what, name).returncode == 0

    def _forget(self, what: str, names: set[str]) -> None:
        for harm, undoing in UNDONE_BY.items():
            if what == undoing:
                self._harmed[harm] -= names

    def _run(self, what: str, node: str) -> subprocess.CompletedProcess[str]:
        command = [word.replace(NODE, node) for word in shlex.split(self._commands[what])]
        try:
            return program_runs.finish(
                command,
                where=shlex.join(command),
                remedy="see what it waits for",
                seconds_max=COMMAND_SECONDS_MAX,
            )
        except OSError as error:
            raise RunError(
                where=command[0],
                what=f"cannot be run: {error.strerror}",
                remedy=f"install it, or name other commands in a file, and the file in {MEANS}",
            ) from error


def _commands(environment: Mapping[str, str]) -> Mapping[str, str]:
    named = environment.get(MEANS)
    if not named:
        for name, command in KIND.items():
            _check(f"kind's command to {name}", command)
        return KIND
    try:
        found = yaml.safe_load(Path(named).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InputError(where=f"{MEANS}={named}", what=str(error), remedy="correct it") from error
    missing = sorted(KIND.keys() - set(found)) if isinstance(found, dict) else ["everything"]
    if missing:
        raise InputError(
            where=f"{MEANS}={named}",
            what=f"does not say {', '.join(missing)}",
            remedy=f"for each of {', '.join(KIND)} give a command, with {{node}} in it",
        )
    if unknown := sorted(map(str, found.keys() - KIND.keys())):
        raise InputError(
            where=f"{MEANS}={named}",
            what=f"says {', '.join(unknown)}, which nobody asks for",
            remedy=f"name the commands {', '.join(KIND)}",
        )
    for name, command in found.items():
        _check(f"{MEANS}={named}: {name}", command)
    return dict(found)


def _check(where: str, command: object) -> None:
    """Raises `InputError` for what would fail when a node is to be lost, or brought back."""
    if not isinstance(command, str) or NODE not in command:
        raise InputError(
            where=where,
            what=f"is {command!r:.80}, and names no node",
            remedy=f"write a command with {NODE} where its name goes",
        )
    try:
        program = shlex.split(command)[0]
    except ValueError as error:
        raise InputError(where=where, what=str(error), remedy="close what was opened") from error
    if shutil.which(program) is None:
        raise InputError(
            where=where,
            what=f"begins with {program}, which is no program here",
            remedy="install it, or correct the command",
        )
