"""Where the programs of the test control plane, and others of tests, come from: found, or built.

Each is looked for in the folder that `KUBEBUILDER_ASSETS` names, then in the cache; what is still
missing is built there from its Go module (building.py), in some minutes. The cache is
`~/.cache/rekindle/testbed`, or the folder that `REKINDLE_TESTBED` names, with a folder for each
version. `REKINDLE_KUBERNETES` chooses the version of Kubernetes.

Custom resource definitions of others (Karpenter, cluster-autoscaler, Cluster API, both Spark
operators) lie in Go modules too. The tests that need them keep them in the same cache.

It starts none of the programs. control_plane.py, the tests and the command line call it.
"""

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from rekindle.errors import InputError
from testbed import building, faults, workshops
from testbed.building import Source

__all__ = [
    "API_SERVER",
    "CONTROLLER_MANAGER",
    "CONTROL_PLANE",
    "COREDNS",
    "ETCD",
    "HELM",
    "KUBECTL",
    "KUBELET",
    "KUBE_PROXY",
    "NODE",
    "PROGRAMS",
    "SCHEDULER",
    "SETS",
    "VERSITYGW",
    "cache_folder",
    "find",
    "kubernetes_version",
    "lacking",
    "say",
]

ETCD = "etcd"
API_SERVER = "kube-apiserver"
CONTROLLER_MANAGER = "kube-controller-manager"
SCHEDULER = "kube-scheduler"
KUBECTL = "kubectl"
HELM = "helm"
KUBELET = "kubelet"
KUBE_PROXY = "kube-proxy"
COREDNS = "coredns"
VERSITYGW = "versitygw"
CONTROL_PLANE = (ETCD, API_SERVER, CONTROLLER_MANAGER, SCHEDULER)
# What a cluster of real nodes needs beside those.
NODE = (KUBELET, KUBE_PROXY, COREDNS)
# The server of stores on S3 is neither's.
PROGRAMS = (*CONTROL_PLANE, KUBECTL, HELM, *NODE, VERSITYGW)
# What the command line builds by one word.
SETS = {
    "all": (*CONTROL_PLANE, KUBECTL, HELM),
    "cluster": (*CONTROL_PLANE, KUBECTL, *NODE),
}

KUBERNETES_VERSION = "1.34.4"
ASSETS = "KUBEBUILDER_ASSETS"
# What every such folder holds; the other two are there only in some.
_ASSETS_MIN = (ETCD, API_SERVER)


def say(line: str) -> None:
    """Progress for a person, on standard error."""
    print(line, file=sys.stderr, flush=True)


def find(
    names: Sequence[str] = CONTROL_PLANE,
    *,
    environment: Mapping[str, str] | None = None,
    progress: Callable[[str], None] = say,
) -> dict[str, Path]:
    """The path of each program of `names`, built first where it is nowhere.

    Raises `InputError` for a bad variable of the environment, and where Go is missing to build
    with; `RunError` when a build fails.
    """
    variables = os.environ if environment is None else environment
    found: dict[str, Path] = {}
    for source, there, missing in _look(names, variables):
        found |= there
        if missing:
            folder = cache_folder(variables) / source.folder
            building.build(source, missing, folder, progress)
            found |= {name: folder / name for name in missing}
    return {name: found[name] for name in names}


def lacking(names: Sequence[str] = CONTROL_PLANE) -> list[InputError]:
    """Why `find` would end before it built anything; nothing where it would not."""
    try:
        wanted = [name for _, _, missing in _look(names, os.environ) for name in missing]
        folder = cache_folder(os.environ)
    except InputError as fault:
        return [fault]
    if not wanted:
        return []
    return [
        *faults.raised(partial(workshops.check, folder)),
        *faults.raised(partial(building.find_go, wanted, folder)),
    ]


def _look(
    names: Sequence[str], variables: Mapping[str, str]
) -> list[tuple[Source, dict[str, Path], list[str]]]:
    """For each source what is there of its programs, and what is missing."""
    version = kubernetes_version(variables)
    assets = _assets(variables)
    looked = []
    others = (building.helm(), building.coredns(), building.versitygw())
    for source in (building.kubernetes(version), *others):
        folder = cache_folder(variables) / source.folder
        wanted = [name for name in names if name in source.packages]
        found: dict[str, Path] = {}
        for place in filter(None, (folder, assets)):  # what is in both comes from the second
            found |= {name: place / name for name in wanted if _is_program(place / name)}
        looked.append((source, found, [name for name in wanted if name not in found]))
    return looked


def cache_folder(environment: Mapping[str, str]) -> Path:
    """Where programs are kept, in a folder for each version. Raises `InputError` without a home."""
    if named := environment.get("REKINDLE_TESTBED"):
        return Path(named).absolute()
    if base := environment.get("XDG_CACHE_HOME"):
        return Path(base).absolute() / "rekindle" / "testbed"
    try:
        return Path.home().absolute() / ".cache" / "rekindle" / "testbed"
    except RuntimeError as error:
        raise InputError(
            where="HOME",
            what="is not set, and this user has no home",
            remedy="set it, or let REKINDLE_TESTBED name a folder to keep programs in",
        ) from error


def kubernetes_version(environment: Mapping[str, str]) -> str:
    """The version to test with. Raises `InputError` for what is none."""
    version = environment.get("REKINDLE_KUBERNETES") or KUBERNETES_VERSION
    if re.fullmatch(r"1\.[0-9]{2}\.[0-9]{1,3}", version) is None:
        raise InputError(
            where="REKINDLE_KUBERNETES",
            what=f"is {version!r:.40}",
            remedy=f"give a whole version such as {KUBERNETES_VERSION}, or leave it out",
        )
    return version


def _assets(environment: Mapping[str, str]) -> Path | None:
    named = environment.get(ASSETS)
    if not named:
        return None
    folder = Path(named).absolute()
    for name in _ASSETS_MIN:
        if not _is_program(folder / name):
            raise InputError(
                where=f"{ASSETS}={named}",
                what=f"holds no program {name}",
                remedy="name a folder with etcd and kube-apiserver, or unset it to have them built",
            )
    return folder


def _is_program(path: Path) -> bool:
    return os.access(path, os.X_OK) and path.is_file()  # in this order it may be another user's
