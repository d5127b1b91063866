"""Options that commands share: which cluster, which namespace, which form of output.

The names are kubectl's. Nothing is read here; `api_connection` does that.
"""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from rekindle.model.errors import InputError


class Form(StrEnum):
    """How a command answers: for a person, or for a script."""

    TABLE = "table"
    JSON = "json"


Namespace = Annotated[
    str | None,
    typer.Option("--namespace", "-n", help="The namespace.", show_default="the context's"),
]
AllNamespaces = Annotated[bool, typer.Option("--all-namespaces", "-A", help="All namespaces.")]
Context = Annotated[
    str | None,
    typer.Option("--context", help="The context of the kubeconfig.", show_default="the current"),
]
Kubeconfig = Annotated[
    Path | None,
    typer.Option("--kubeconfig", help="The kubeconfig.", show_default="$KUBECONFIG, ~/.kube"),
]
Policy = Annotated[
    str | None, typer.Option("--policy", help="The policy.", show_default="the only one")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Say what would happen, and change nothing.")
]
Output = Annotated[Form, typer.Option("--output", "-o", help="For people, or for scripts.")]


@dataclass(frozen=True, slots=True)
class Target:
    """What is meant by the options of a command; `everywhere`: in all namespaces."""

    namespace: str | None = None
    context: str | None = None
    kubeconfig: Path | None = None
    everywhere: bool = False

    def __post_init__(self) -> None:
        if self.everywhere and self.namespace is not None:
            raise InputError(
                where="--all-namespaces",
                what=f"is given together with --namespace {self.namespace}",
                remedy="leave one of them out",
            )
