"""The Go modules that the test control plane and other programs of tests are built from.

A module of somebody else's cannot be built by itself: what its go.mod replaces by folders of its
repository lies in modules of their own. So a module of ours is written around it (`compose`), with
these replacements as versions. go_builds.py builds it, test_programs.py chooses the modules.
"""

import hashlib
import platform
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass

HELM_VERSION = "4.3.1"
COREDNS_VERSION = "1.15.0"
VERSITYGW_VERSION = "1.8.0"
# These settings of the user would change what is built.
SETTINGS = {
    "CGO_ENABLED": "0",
    "GOAMD64": "v1",
    "GOFLAGS": "-mod=mod -buildvcs=false",
    "GOWORK": "off",
}
_GO_LINE = re.compile(r"^go [0-9.]+$", re.MULTILINE)
_STAGED = re.compile(r"^\s*(?:replace\s+)?(k8s\.io/[a-z0-9-]+) => \./staging/", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class GoModule:
    """A Go module with programs: `packages` by their names, `variables` that the linker sets.

    `staged` is the version of the modules that the module replaces by folders of its own.
    """

    name: str
    module: str
    version: str
    packages: Mapping[str, str]
    variables: Mapping[str, str]
    staged: str = ""

    @property
    def folder(self) -> str:
        """The name of the folder for these programs; all that decides what is built is in it.

        Go's version is not: any that can build the module will do, and a machine without Go uses
        what is there.
        """
        recipe = repr((self, sorted(SETTINGS.items()), self.flags))
        digest = hashlib.sha256(recipe.encode()).hexdigest()[:8]
        version = self.version.removeprefix("v")
        return f"{self.name}-{version}-{sys.platform}-{platform.machine()}-{digest}"

    @property
    def flags(self) -> tuple[str, ...]:
        """Arguments of `go build`."""
        settings = (f"-X {name}={value}" for name, value in self.variables.items())
        return ("-trimpath", "-ldflags", " ".join(("-s", "-w", *settings)))


def kubernetes(version: str) -> GoModule:
    """Kubernetes, and etcd in the version that it is built with."""
    module = "k8s.io/kubernetes"
    names = (
        *("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"),
        *("kubelet", "kube-proxy"),
    )
    major, minor, _ = version.split(".")
    reported = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor}
    return GoModule(
        name="kubernetes",
        module=module,
        version=f"v{version}",
        packages={
            "etcd": "go.etcd.io/etcd/server/v3",
            **{name: f"{module}/cmd/{name}" for name in names},
        },
        variables={f"k8s.io/component-base/version.{key}": text for key, text in reported.items()},
        staged=f"v0.{version.partition('.')[2]}",
    )


def helm() -> GoModule:
    """Helm, for the tests of the chart."""
    module = f"helm.sh/helm/v{HELM_VERSION.partition('.')[0]}"
    return GoModule(
        name="helm",
        module=module,
        version=f"v{HELM_VERSION}",
        packages={"helm": f"{module}/cmd/helm"},
        variables={f"{module}/internal/version.version": f"v{HELM_VERSION}"},
    )


def coredns() -> GoModule:
    """CoreDNS, which answers for the names of services; its module is the program."""
    module = "github.com/coredns/coredns"
    return GoModule(
        name="coredns",
        module=module,
        version=f"v{COREDNS_VERSION}",
        packages={"coredns": module},
        variables={},
    )


def versitygw() -> GoModule:
    """Versity's gateway, which serves a folder as S3 does, conditional writes included."""
    module = "github.com/versity/versitygw"
    return GoModule(
        name="versitygw",
        module=module,
        version=f"v{VERSITYGW_VERSION}",
        packages={"versitygw": f"{module}/cmd/versitygw"},
        variables={},
    )


def compose(wanted: GoModule, upstream: str) -> str:
    """The go.mod of a module that has `wanted` as its only requirement.

    `upstream` is the text of its own go.mod; its replacements hold only there, so they
    are taken over.
    """
    line = _GO_LINE.search(upstream)
    parts = ["module testbed", line[0] if line else "", f"require {wanted.module} {wanted.version}"]
    replaced = sorted(set(_STAGED.findall(upstream)))
    if replaced:
        lines = "".join(f"\t{module} => {module} {wanted.staged}\n" for module in replaced)
        parts.append(f"replace (\n{lines})")
    return "\n\n".join(part for part in parts if part) + "\n"
