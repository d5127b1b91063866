"""Runs helm on the chart for tests of this folder, with folders of helm's own that go after it.

What they ask of the chart and expect is theirs.
"""

import os
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[3]
CHART = ROOT / "charts" / "rekindle"
# Values that switch on all that the chart has.
EVERYTHING = Path(__file__).parent / "everything.yaml"
RELEASE, NAMESPACE = "rekindle", "rekindle"
COMMAND_SECONDS_MAX = 120

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Helm:
    """`home` takes what helm keeps between commands. Without a kubeconfig it knows no cluster."""

    program: Path
    home: Path
    kubeconfig: Path | None = None

    def run(self, *arguments: object, namespace: str = NAMESPACE) -> tuple[int, str, str]:
        """The exit code of a command, what it prints and what it says of errors."""
        cluster = () if self.kubeconfig is None else ("--kubeconfig", str(self.kubeconfig))
        done = subprocess.run(
            [self.program, *map(str, arguments), "--namespace", namespace, *cluster],
            env={
                **{name: value for name, value in os.environ.items() if name != "KUBECONFIG"},
                **{
                    f"HELM_{kind}_HOME": str(self.home / kind.lower())
                    for kind in ("CACHE", "CONFIG", "DATA")
                },
            },
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS_MAX,
        )
        return done.returncode, done.stdout, done.stderr

    def do(self, *arguments: object) -> str:
        """What a command prints that has to succeed."""
        code, printed, errors = self.run(*arguments)
        assert code == 0, errors or printed
        return printed

    def template(self, *arguments: object, namespace: str = NAMESPACE) -> str:
        """The manifests of the chart, as text."""
        code, printed, errors = self.run(
            "template", RELEASE, CHART, *arguments, namespace=namespace
        )
        assert code == 0, errors
        return printed

    def objects(self, *arguments: object) -> list[Object]:
        """The manifests of the chart."""
        # PyYAML's own parser takes ten times as long as libyaml
        read = yaml.load_all(self.template(*arguments), Loader=yaml.CSafeLoader)
        return [found for found in read if found]

    def refusal(self, *settings: str) -> str:
        """What is said of values that have to be refused; nothing may be rendered."""
        options = [word for setting in settings for word in ("--set", setting)]
        code, printed, errors = self.run("template", RELEASE, CHART, *options)
        assert code != 0, f"{settings} are accepted"
        assert not printed.strip(), printed
        return errors


def pick(objects: Iterable[Object], kind: str, name: str, namespace: str = NAMESPACE) -> Object:
    """The one object of this kind and name; of those with a namespace, in this one."""
    (found,) = (
        item
        for item in objects
        if (item["kind"], item["metadata"]["name"]) == (kind, name)
        and item["metadata"].get("namespace", namespace) == namespace
    )
    return found
