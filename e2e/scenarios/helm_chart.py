"""Helm, on a cluster: the chart of this checkout, installed as docs/install.md says.

`deployment` calls it; `quickstart_scenario` has helm called by the page that it runs.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from testbed import program_runs

CHART = Path(__file__).parents[2] / "charts" / "rekindle"
RELEASE = NAMESPACE = "rekindle"
INSTALL_SECONDS_MAX = 600
# Helm has a limit of its own, and a better word at it.
HELM_SECONDS_MAX = INSTALL_SECONDS_MAX + 120.0


def homes(home: Path) -> dict[str, str]:
    """Variables by which helm keeps in a folder what it would keep at home."""
    return {f"HELM_{kind}_HOME": str(home / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA")}


def install(program: Path, kubeconfig: Path, values: Mapping[str, Any], home: Path) -> None:
    """Install the chart and wait until its pods are ready; `home` takes what helm keeps.

    Raises `RunError` with what helm says when it is not.
    """
    home.mkdir(parents=True, exist_ok=True)
    file = home / "values.yaml"
    file.write_text(yaml.safe_dump(dict(values), sort_keys=False))
    _run(
        program,
        kubeconfig,
        home,
        # Relative, as helm takes a comma in a path for the end of one file's name.
        *("install", RELEASE, str(CHART), "--create-namespace", "--values", file.name),
        *("--wait", "--timeout", f"{INSTALL_SECONDS_MAX}s"),
    )


def uninstall(program: Path, kubeconfig: Path, home: Path) -> None:
    """Remove the chart, where it is there. Raises `RunError` with what helm says when it cannot."""
    _run(program, kubeconfig, home, "uninstall", RELEASE, "--wait", "--ignore-not-found")


def _run(program: Path, kubeconfig: Path, home: Path, *arguments: str) -> None:
    access = ("--namespace", NAMESPACE, "--kubeconfig", str(kubeconfig))
    command = [str(program), *arguments, *access]
    kept = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
    program_runs.run(
        command,
        where=f"helm {arguments[0]} {RELEASE}",
        remedy=f"see the values in {home}, and the pods of namespace {NAMESPACE}",
        seconds_max=HELM_SECONDS_MAX,
        env={**kept, **homes(home)},
        cwd=home,
    )
