"""Builds the programs of the test control plane from their Go modules.

A module of somebody else's cannot be built by itself: what its go.mod replaces by folders of its
repository lies in modules of their own. So a module of ours is written around it, with these
replacements as versions. A program appears in the folder whole or not at all, and a second builder
waits for the first. binaries.py decides what is missing, and is the only caller.
"""

import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed import programs, workshops

__all__ = [
    "Source",
    "build",
    "compose_module",
    "coredns",
    "find_go",
    "helm",
    "kubernetes",
    "versitygw",
]

Progress = Callable[[str], None]

HELM_VERSION = "4.3.1"
COREDNS_VERSION = "1.15.0"
VERSITYGW_VERSION = "1.8.0"
_GO_LINE = re.compile(r"^go [0-9.]+$", re.MULTILINE)
_STAGED = re.compile(r"^\s*(?:replace\s+)?(k8s\.io/[a-z0-9-]+) => \./staging/", re.MULTILINE)
# Of one step; on two busy cores the longest takes ten minutes.
STEP_SECONDS_MAX = 3_600.0


@dataclass(frozen=True, slots=True)
class Source:
    """A Go module with programs: `packages` by their names, `variables` that the linker sets.

    `folder` is the name of the folder of this version, `staged` the version of the modules that
    the module replaces by folders of its own.
    """

    module: str
    version: str
    folder: str
    packages: Mapping[str, str]
    variables: Mapping[str, str]
    staged: str = ""


def kubernetes(version: str) -> Source:
    """Kubernetes, and etcd in the version that it is built with."""
    module = "k8s.io/kubernetes"
    names = (
        *("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"),
        *("kubelet", "kube-proxy"),
    )
    major, minor, _ = version.split(".")
    told = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor}
    return Source(
        module=module,
        version=f"v{version}",
        folder=version,
        packages={
            "etcd": "go.etcd.io/etcd/server/v3",
            **{name: f"{module}/cmd/{name}" for name in names},
        },
        variables={f"k8s.io/component-base/version.{key}": text for key, text in told.items()},
        staged=f"v0.{version.partition('.')[2]}",
    )


def helm() -> Source:
    """Helm, for the tests of the chart."""
    module = f"helm.sh/helm/v{HELM_VERSION.partition('.')[0]}"
    return Source(
        module=module,
        version=f"v{HELM_VERSION}",
        folder=f"helm-{HELM_VERSION}",
        packages={"helm": f"{module}/cmd/helm"},
        variables={f"{module}/internal/version.version": f"v{HELM_VERSION}"},
    )


def coredns() -> Source:
    """CoreDNS, which answers for the names of services; its module is the program."""
    module = "github.com/coredns/coredns"
    return Source(
        module=module,
        version=f"v{COREDNS_VERSION}",
        folder=f"coredns-{COREDNS_VERSION}",
        packages={"coredns": module},
        variables={},
    )


def versitygw() -> Source:
    """Versity's gateway, which serves a folder as S3 does, conditional writes included."""
    module = "github.com/versity/versitygw"
    return Source(
        module=module,
        version=f"v{VERSITYGW_VERSION}",
        folder=f"versitygw-{VERSITYGW_VERSION}",
        packages={"versitygw": f"{module}/cmd/versitygw"},
        variables={},
    )


def build(source: Source, names: Sequence[str], folder: Path, progress: Progress) -> None:
    """Build the programs `names` into `folder`, but for those that are there by now.

    Raises `InputError` when Go is missing, `RunError` when it cannot build.
    """
    go = find_go(names, folder)
    with workshops.alone(folder, progress):
        missing = [name for name in names if not (folder / name).exists()]
        if missing:
            with workshops.opened(folder) as workshop:
                _build_all(go, source, missing, workshop, progress)


def find_go(names: Sequence[str], folder: Path) -> str:
    """The path of Go. Raises `InputError` for programs that `folder` lacks when it is missing."""
    return programs.find(
        "go",
        where="the test control plane",
        what=f"{folder} holds no {', '.join(names)}, and Go is not installed to build them",
        remedy="install Go (on Debian `apt-get install golang-go`), or let KUBEBUILDER_ASSETS "
        "name a folder with etcd, kube-apiserver, kube-controller-manager and kube-scheduler",
    )


def compose_module(source: Source, upstream: str) -> str:
    """The go.mod of a module that has `source` as its only requirement.

    `upstream` is the text of the source's own go.mod; its replacements hold only there, so they
    are taken over.
    """
    line = _GO_LINE.search(upstream)
    parts = ["module testbed", line[0] if line else "", f"require {source.module} {source.version}"]
    replaced = sorted(set(_STAGED.findall(upstream)))
    if replaced:
        lines = "".join(f"\t{module} => {module} {source.staged}\n" for module in replaced)
        parts.append(f"replace (\n{lines})")
    return "\n\n".join(part for part in parts if part) + "\n"


def _build_all(
    go: str, source: Source, names: Sequence[str], workshop: Path, progress: Progress
) -> None:
    progress(f"building {', '.join(names)} from {source.module} {source.version}: minutes, once")
    started = time.monotonic()
    wanted = f"{source.module}@{source.version}"
    (workshop / "go.mod").write_text("module testbed\n")
    file = _run(go, ["list", "-m", "-f", "{{.GoMod}}", wanted], workshop).strip()
    upstream = Path(file).read_text(encoding="utf-8")
    (workshop / "go.mod").write_text(compose_module(source, upstream), encoding="utf-8")
    settings = (f"-X {name}={value}" for name, value in source.variables.items())
    flags = " ".join(("-s", "-w", *settings))
    for count, name in enumerate(names, start=1):
        progress(f"{time.monotonic() - started:4.0f} s: {name} ({count} of {len(names)})")
        output = workshop / name
        arguments = ["build", "-trimpath", "-ldflags", flags, "-o", str(output)]
        _run(go, [*arguments, source.packages[name]], workshop)
        output.rename(workshop.parent / name)
    progress(f"{time.monotonic() - started:4.0f} s: done, kept in {workshop.parent}")


def _run(go: str, arguments: Sequence[str], workshop: Path) -> str:
    """What Go prints. Settings of the user that would change what is built are left out."""
    environment = {
        **os.environ,
        "CGO_ENABLED": "0",
        "GOFLAGS": "-mod=mod -buildvcs=false",
        "GOWORK": "off",
    }
    return programs.run(
        [go, *arguments],
        where=f"go {arguments[0]} {arguments[-1]}",
        remedy="see whether `go version` is recent, Go modules can be downloaded, and 6 GB "
        "of disk are free",
        seconds_max=STEP_SECONDS_MAX,
        cwd=workshop,
        env=environment,
    )
