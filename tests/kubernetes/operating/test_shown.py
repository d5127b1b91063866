"""What kubectl shows of recoveries while they go on, as docs/kubectl.md has it."""

import subprocess
from pathlib import Path

import yaml
from operating_world import World, await_that

from testbed.control_plane import ControlPlane

DEFINITION = Path(__file__).parents[3] / "crds" / "recoveries.yaml"


def shown(kubectl: Path, plane: ControlPlane, *arguments: str) -> list[str]:
    """The lines that kubectl prints."""
    done = subprocess.run(
        [kubectl, "--kubeconfig", plane.kubeconfig, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    print(f"$ kubectl {' '.join(arguments)}", done.stdout, sep="\n")
    return done.stdout.splitlines()


def columns() -> list[str]:
    """Of the definition, those of -o wide as well."""
    (version,) = yaml.safe_load(DEFINITION.read_text())["spec"]["versions"]
    return [column["name"].upper() for column in version["additionalPrinterColumns"]]


def test_kubectl_tells_the_course_of_a_recovery(
    world: World, kubectl: Path, control_plane: ControlPlane
) -> None:
    ask = ("get", "recoveries", "-o", "wide", "-n", world.namespace)
    world.start(zones=("a", "b"))
    world.lose(*world.executors_nodes()[:2])
    await_that(lambda: world.phase() == "AwaitingCheckpoint")
    header, row = shown(kubectl, control_plane, *ask)
    assert header.split("  ")[0] == "NAME"
    assert [name for name in columns() if name not in header] == []
    assert "AwaitingCheckpoint" in row
    assert "4/4" in row
    world.nodes.add(2, zone="b")
    await_that(lambda: world.driver.is_whole)
    world.end()
    assert "Recovered" in shown(kubectl, control_plane, *ask)[1]
