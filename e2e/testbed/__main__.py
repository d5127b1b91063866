"""`python -m testbed`: builds the programs, and runs a control plane, or a cluster, to look at.

Exit codes: 0 done; 1 it failed; 2 wrong usage or bad input; 130 interrupted. `up` stays in the
foreground, so that nothing is left when it ends; `down` ends it from elsewhere. It writes down
which nodes there are; `lose` and `return` leave word in a folder, a file for each lost node, and it
follows. `cluster` is a package.
"""

import argparse
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rekindle.model.errors import InputError
from rekindle_cli import cli_options
from rekindle_cli.cli_options import interruptible
from testbed import (
    environment_faults,
    file_lock,
    owned_folders,
    process_owners,
    spark_releases,
    test_authority,
    test_programs,
)
from testbed.cluster.cluster_commands import add_commands
from testbed.exit_codes import exit_code
from testbed.test_programs import CONTROL_PLANE, PROGRAMS, SETS

END_SECONDS_MAX = 60.0
OWNER = "owner"
NODES = "nodes"
LOST = "lost"
LOOK_SECONDS = 0.2
EXAMPLE = "Example: python -m testbed up --nodes 10 --zones a,b"


def main(arguments: Sequence[str]) -> int:
    """Runs one command; returns the exit code."""
    given = _parser().parse_args(arguments)
    return exit_code(lambda: given.command(given))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m testbed",
        description="A real Kubernetes control plane, or a whole cluster, for tests.",
        epilog=EXAMPLE,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    build = commands.add_parser("build", help="find the programs, or build them (minutes, once)")
    build.add_argument(
        "programs",
        nargs="*",
        metavar="PROGRAM",
        help=f"{', '.join(PROGRAMS)}; all: what simulated nodes need; cluster: real ones",
    )
    build.set_defaults(command=_build)
    sparks = commands.add_parser("spark-releases", help="install other releases of Spark (once)")
    sparks.add_argument("releases", nargs="*", metavar="RELEASE", help="all where none is named")
    sparks.set_defaults(command=_install_sparks)
    clean = commands.add_parser("clean-cache", help="remove programs and definitions that are kept")
    clean.set_defaults(command=_clean_cache)
    up = commands.add_parser("up", help="start a control plane, print its kubeconfig, and stay")
    up.add_argument("--nodes", type=int, default=0, metavar="N", help="simulated nodes (0)")
    up.add_argument("--zones", default="", metavar="A,B", help="zones that the nodes take in turn")
    up.add_argument("--grace", type=float, default=50, metavar="S", help="seconds to Unknown (50)")
    up.set_defaults(command=_up)
    down = commands.add_parser("down", help="end the control plane that `up` has started")
    down.set_defaults(command=_down)
    lose = commands.add_parser("lose", help="let nodes fall silent, as lost ones do")
    lose.set_defaults(command=_lose)
    again = commands.add_parser("return", help="let lost nodes be heard of again")
    again.set_defaults(command=_return)
    for command in (lose, again):
        command.add_argument("nodes", nargs="+", metavar="NODE", help="as kubectl get nodes has it")
    add_commands(commands)
    for command in (up, down, lose, again):
        command.add_argument(
            "--directory", type=Path, default=None, metavar="DIR", help="where it lies"
        )
    return parser


def _build(given: argparse.Namespace) -> None:
    wanted = CONTROL_PLANE if not given.programs else tuple(given.programs)
    for name in wanted:
        cli_options.check_choice("PROGRAM", name, (*PROGRAMS, *SETS))
    names = dict.fromkeys(one for name in wanted for one in SETS.get(name, (name,)))
    with interruptible():
        found = test_programs.find([*names], again=True)
    for name, path in found.items():
        print(f"{name}\t{path}")


def _install_sparks(given: argparse.Namespace) -> None:
    for release in given.releases:
        cli_options.check_choice("RELEASE", release, spark_releases.RELEASES)
    with interruptible():
        failures = spark_releases.install(
            given.releases or spark_releases.RELEASES, test_programs.say
        )
    for failure in failures[1:]:
        test_programs.say(str(failure))
    if failures:
        raise failures[0]


def _clean_cache(_: argparse.Namespace) -> None:
    left = test_programs.clean_cache(os.environ)
    for folder in left:
        test_programs.say(f"{folder} is in use, or another user's, and stays")


def _up(given: argparse.Namespace) -> None:
    # Only here: the official client takes more than a second to import.
    from testbed.control_plane import ControlPlane
    from testbed.simulated_kubelets import SimulatedKubelets

    cli_options.check_range("--nodes", given.nodes, 0, 10_000)
    cli_options.check_range("--grace", given.grace, 1, 86_400)
    directory = _directory(given)
    owned_folders.check_place(directory)
    environment_faults.check(
        [*environment_faults.raised(test_authority.find_openssl), *test_programs.lacking()]
    )
    ended = threading.Event()
    for ending in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ending, lambda *_: ended.set())
    with ExitStack() as stack:
        stack.enter_context(_owned(directory))
        plane = ControlPlane(
            directory=directory, programs=test_programs.find(), node_grace_seconds=given.grace
        )
        stack.enter_context(plane)
        nodes = stack.enter_context(SimulatedKubelets(plane))
        if given.nodes:
            zones = given.zones.split(",")
            for number, zone in enumerate(zones):
                if count := len(range(number, given.nodes, len(zones))):
                    nodes.add(count, zone=zone)
        (directory / NODES).write_text("\n".join(nodes.names))
        print(f"export KUBECONFIG={plane.kubeconfig}", flush=True)
        test_programs.say("the control plane is up; Ctrl-C, or `python -m testbed down`, ends it")
        lost: frozenset[str] = frozenset()
        while not ended.wait(LOOK_SECONDS):
            wanted = lost_nodes(directory) & set(nodes.names)
            if wanted != lost:
                nodes.lose(*wanted - lost)
                nodes.bring_back(*lost - wanted)
                test_programs.say(f"lost are: {', '.join(sorted(wanted)) or 'none'}")
            lost = wanted


def lost_nodes(directory: Path) -> frozenset[str]:
    """Names of the nodes that shall be silent."""
    return frozenset(file.name for file in (directory / LOST).iterdir())


def _lose(given: argparse.Namespace) -> None:
    directory = _running(given)
    known = (directory / NODES).read_text().split()
    for name in given.nodes:
        if name not in known:
            raise InputError(
                where=name, what="is no node here", remedy="`kubectl get nodes` has them"
            )
    for name in given.nodes:
        (directory / LOST / name).touch()


def _return(given: argparse.Namespace) -> None:
    directory = _running(given)
    lost = lost_nodes(directory)
    for name in given.nodes:
        if name not in lost:
            raise InputError(
                where=name,
                what="is not lost",
                remedy=f"lost are: {', '.join(sorted(lost)) or 'none'}",
            )
    for name in given.nodes:
        (directory / LOST / name).unlink(missing_ok=True)


def _running(given: argparse.Namespace) -> Path:
    """The directory of a control plane that runs. Raises `InputError` where none does."""
    directory = _directory(given)
    file = directory / OWNER
    try:
        runs = owned_folders.is_ours(directory) and file.exists() and file_lock.is_taken(file)
    except OSError as error:
        raise InputError(
            where=str(file),
            what=f"cannot be read and written ({error.strerror})",
            remedy="run this as who has started the control plane, or name its --directory",
        ) from error
    if not runs:
        raise InputError(
            where=str(directory), what="no control plane runs there", remedy="start one with `up`"
        )
    return directory


def _down(given: argparse.Namespace) -> None:
    directory = _running(given)
    file = directory / OWNER
    owner = _owner(file)
    if owner == 0:
        raise InputError(
            where=str(file),
            what="does not say which process runs the control plane",
            remedy="look again in a moment, or end it by Ctrl-C",
        )
    process_owners.end(
        owner,
        lambda: not file_lock.is_taken(file),
        seconds_max=END_SECONDS_MAX,
        remedy="kill it: nothing is left of it then either",
    )


def _owner(file: Path) -> int:
    """The process that a file names, 0 for a file that names none."""
    told = file.read_text(errors="replace").strip()
    # Anything else would be no process, or many.
    return int(told) if re.fullmatch("[1-9][0-9]{0,9}", told) else 0


def _directory(given: argparse.Namespace) -> Path:
    named: Path | None = given.directory
    return (named or test_programs.cache_folder(os.environ) / "up").absolute()


@contextmanager
def _owned(directory: Path) -> Iterator[None]:
    """Says in the directory who runs a control plane there. Raises `InputError` for a second, and
    for a directory that holds something else."""
    file = directory / OWNER
    try:
        owned_folders.make(directory)
        if not owned_folders.is_ours(directory):
            raise InputError(
                where=f"--directory {directory}",
                what="is not empty, and no control plane has been there",
                remedy="name another folder or a new one, or remove it",
            )
        held = file_lock.take(file)
    except OSError as error:
        raise InputError(
            where=f"--directory {directory}",
            what=f"cannot be written ({error.strerror})",
            remedy="name a folder that may be made and written",
        ) from error
    if held is None:
        raise InputError(
            where=str(directory),
            what=f"{process_owners.described(_owner(file))} runs a control plane there",
            remedy="end it with `python -m testbed down`, or give another --directory",
        )
    with held:
        file.write_text(f"{os.getpid()}\n")
        folder = directory / LOST
        folder.mkdir(exist_ok=True)
        for left in folder.iterdir():
            left.unlink()
        (directory / NODES).write_text("")
        yield


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
