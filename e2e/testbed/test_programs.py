"""Where the programs of the test control plane, and others of tests, come from: found, or built.

Each is looked for in the folder that `KUBEBUILDER_ASSETS` names, then in the cache; what is still
missing is built there from its Go module (go_builds.py), in some minutes. The cache is
`~/.cache/rekindle/testbed`, or the folder that `REKINDLE_TESTBED` names. All clones of a user share
it: `programs` there has a folder for each version and recipe, and only programs that still have
the digest with which they were put there are used. `REKINDLE_KUBERNETES` chooses the version of
Kubernetes.

Custom resource definitions of others (Karpenter, cluster-autoscaler, Cluster API, both Spark
operators) lie in Go modules too. The tests that need them keep them in the same cache.

It starts none of the programs. control_plane.py, the tests and the command line call it.
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from rekindle.model.errors import InputError
from rekindle_local import cached_files, class_archives
from rekindle_local.cached_files import say
from testbed import environment_faults, go_builds, go_modules, workshops
from testbed.go_builds import Order

__all__ = [
    "API_SERVER",
    "CONTROLLER_MANAGER",
    "CONTROL_PLANE",
    "COREDNS",
    "DEFINITIONS_FOLDER",
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
    "clean_cache",
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

PROGRAMS_FOLDER = "programs"
DEFINITIONS_FOLDER = "definitions"
KUBERNETES_VERSION = "1.34.4"
ASSETS = "KUBEBUILDER_ASSETS"
TESTBED = "REKINDLE_TESTBED"
# Folders in the cache that can be made again: programs, those of older versions of Rekindle by the
# version of Kubernetes alone, class-data archives, definitions of others, and releases of Spark.
_KEPT = re.compile(
    r"(kubernetes|helm|coredns|versitygw|spark)-[0-9.]+(-\w+-\w+-[0-9a-f]{8})?|1\.[0-9.]+|[0-9a-f]{16}"
    r"|.+@v.+"
)
# What every such folder holds; the other two are there only in some.
_ASSETS_MIN = (ETCD, API_SERVER)


def find(
    names: Sequence[str] = CONTROL_PLANE,
    *,
    environment: Mapping[str, str] | None = None,
    progress: Callable[[str], None] = say,
    again: bool = False,
) -> dict[str, Path]:
    """Returns the path of each program of `names`, built first where it is nowhere.

    A build that failed a few minutes ago is repeated only `again`. Raises `InputError` for a bad
    variable of the environment, and where Go is missing to build with; `RunError` when a build
    fails.
    """
    variables = os.environ if environment is None else environment
    found, orders = _look(names, variables)
    go_builds.build(orders, progress, again=again)
    for order in orders:
        found |= {name: order.folder / name for name in order.names}
    for folder in {path.parent for path in found.values()} - {_assets(variables)}:
        cached_files.mark_used(folder)
    return {name: found[name] for name in names}


def lacking(names: Sequence[str] = CONTROL_PLANE) -> list[InputError]:
    """Returns why `find` would end before it built anything; nothing where it would not."""
    try:
        _, orders = _look(names, os.environ)
    except InputError as fault:
        return [fault]
    if not orders:
        return []
    return [
        *environment_faults.raised(partial(workshops.check, orders[0].folder)),
        *environment_faults.raised(partial(go_builds.find_go, orders)),
    ]


def _look(
    names: Sequence[str], variables: Mapping[str, str]
) -> tuple[dict[str, Path], list[Order]]:
    """Returns what is there, and what has to be built."""
    version = kubernetes_version(variables)
    assets = _assets(variables)
    found: dict[str, Path] = {}
    orders = []
    others = (go_modules.helm(), go_modules.coredns(), go_modules.versitygw())
    for module in (go_modules.kubernetes(version), *others):
        folder = cache_folder(variables) / PROGRAMS_FOLDER / module.folder
        missing = []
        for name in filter(module.packages.__contains__, names):
            if assets and _is_program(assets / name):
                found[name] = assets / name
            elif _is_program(folder / name) and cached_files.is_intact(folder / name):
                found[name] = folder / name
            else:
                missing.append(name)
        if missing:
            orders.append(Order(module, folder, missing))
    return found, orders


def cache_folder(environment: Mapping[str, str]) -> Path:
    """Returns the folder of all that the testbed keeps. Raises `InputError` without a home."""
    if named := environment.get(TESTBED):
        return Path(named).absolute()
    return cached_files.find_folder(environment) / "testbed"


def clean_cache(environment: Mapping[str, str]) -> list[Path]:
    """Removes programs, definitions and class-data archives, which the next run makes again.

    Where REKINDLE_TESTBED names a folder, only what is in it goes: class-data archives lie
    elsewhere. Returns the folders that stay: a process has locked them or runs from them, or they
    are another user's. Images have limits of their own.
    """
    cache = cache_folder(environment)
    archives = class_archives.default_cache(environment)
    candidates = [
        *cached_files.locked_once(cache / DEFINITIONS_FOLDER),
        *([] if environment.get(TESTBED) else cached_files.locked_once(archives)),
        *cached_files.locked_once(cache / PROGRAMS_FOLDER),
        *cached_files.locked_once(cache),
    ]
    kept = [folder for folder in candidates if _KEPT.fullmatch(folder.name)]
    return [folder for folder in kept if not cached_files.discard(folder)]


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
