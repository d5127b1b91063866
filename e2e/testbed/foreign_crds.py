"""The custom resource definitions of others, taken from their Go modules when first needed.

Their text is theirs and is never kept in the repository: Go's own client downloads it and checks it
against Go's checksum database, and it is kept in the cache of the test control plane, a folder per
module and version. What was kept once needs neither Go nor a network.

The SparkApplication of apache/spark-kubernetes-operator is not here: it is a Java project, not a Go
module, and Maven Central does not have its artifact. Tests that need its kind use a definition
without a schema (`schemaless`), which proves nothing about its fields.

Installs nothing by itself: `install` does, for tests and scenarios.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from kubernetes import client

from rekindle.model.errors import InputError, RunError
from rekindle_local import cached_files, process_sets
from testbed import environment_faults, program_runs, test_programs, workshops

DOWNLOAD_SECONDS_MAX = 600
ESTABLISH_SECONDS_MAX = 60.0
# The one in C, where it is there, takes 0.15 s for a file of 800 KB, the other one 1.3 s.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class Foreign:
    """Definitions in a Go module: `files` are paths below its root."""

    module: str
    version: str
    files: tuple[str, ...]

    @property
    def folder(self) -> str:
        """Name of the folder in the cache."""
        return f"{self.module.replace('/', '_')}@{self.version}"


FOREIGN: Mapping[str, Foreign] = {
    "autoscaler": Foreign(
        "k8s.io/autoscaler/cluster-autoscaler/apis",
        "v0.0.0-20240830133931-adfbe7e45277",
        ("config/crd/autoscaling.x-k8s.io_provisioningrequests.yaml",),
    ),
    "karpenter": Foreign(
        "sigs.k8s.io/karpenter",
        "v1.14.0",
        (
            "pkg/apis/crds/karpenter.sh_nodeclaims.yaml",
            "pkg/apis/crds/karpenter.sh_nodepools.yaml",
        ),
    ),
    "cluster-api": Foreign(
        "sigs.k8s.io/cluster-api",
        "v1.14.2",
        (
            "core/config/crd/bases/cluster.x-k8s.io_machinedeployments.yaml",
            "core/config/crd/bases/cluster.x-k8s.io_machines.yaml",
        ),
    ),
    "spark-operator": Foreign(
        "github.com/kubeflow/spark-operator/v2",
        "v2.5.2",
        ("config/crd/bases/sparkoperator.k8s.io_sparkapplications.yaml",),
    ),
}


# Which version an API server stores that has none of the controllers that convert them.
STORED = {
    "autoscaler": "v1",
    "karpenter": "v1",
    "cluster-api": "v1beta2",
    "spark-operator": "v1beta2",
}
PROVIDERS = ("autoscaler", "karpenter", "cluster-api")


def find(name: str) -> list[Path]:
    """The files of one entry of `FOREIGN`, downloaded first where the cache does not have them.

    Raises `InputError` when Go is missing to download with, or the cache cannot be written, and
    `RunError` when the download fails.
    """
    wanted, files = FOREIGN[name], _files(name)
    if not _are_there(files):
        folder = files[0].parent
        with workshops.alone(folder, test_programs.say):
            if not _are_there(files):
                test_programs.say(f"downloading {wanted.module} {wanted.version}, once")
                with _module(wanted) as root, workshops.opened(folder) as workshop:
                    for file, source in zip(files, wanted.files, strict=True):
                        cached_files.put(Path(shutil.copy(root / source, workshop)), file)
    return files


def lacking(name: str) -> list[InputError]:
    """Why `find` would end before it downloaded anything; nothing where it would not."""
    files = _files(name)
    if _are_there(files):
        return []
    return [
        *environment_faults.raised(partial(workshops.check, files[0].parent)),
        *environment_faults.raised(partial(_find_go, FOREIGN[name])),
    ]


def definition(file: Path, *, versions: Iterable[str] = ()) -> dict[str, Any]:
    """The definition in a file, ready for an API server without its controllers.

    Conversion between versions needs a webhook of theirs, so with `versions` only those are kept,
    the last one stored.
    """
    found: dict[str, Any] = yaml.load(file.read_text(encoding="utf-8"), Loader=_LOADER)
    found["metadata"] = {
        key: found["metadata"][key] for key in ("name", "annotations") if key in found["metadata"]
    }
    kept = [*versions]
    if kept:
        spec = found["spec"]
        spec.pop("conversion", None)
        spec["versions"] = [item for item in spec["versions"] if item["name"] in kept]
        assert len(spec["versions"]) == len(kept), f"{file} does not have all of {kept}"
        for item in spec["versions"]:
            item["storage"] = item["name"] == kept[-1]
    return found


def stored(*names: str) -> list[dict[str, Any]]:
    """The definitions of entries of `FOREIGN`, each with the version of `STORED`; raises as
    `find`."""
    return [definition(file, versions=[STORED[name]]) for name in names for file in find(name)]


def spark_applications() -> list[dict[str, Any]]:
    """Both kinds of SparkApplication; raises as `find`."""
    apache = schemaless("spark.apache.org", "v1", "SparkApplication", "sparkapplications")
    return [*stored("spark-operator"), apache]


def schemaless(group: str, version: str, kind: str, plural: str) -> dict[str, Any]:
    """A definition that accepts anything, for a kind whose own cannot be had."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural},
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                    "subresources": {"status": {}},
                }
            ],
        },
    }


def install(api_client: client.ApiClient, definitions: Iterable[Mapping[str, Any]]) -> None:
    """Have these definitions in the API server, and wait until it serves them. May be repeated.

    Raises `RunError` when it does not.
    """
    extensions: Any = client.ApiextensionsV1Api(api_client)
    wanted = {item["metadata"]["name"]: item for item in definitions}
    there = _established(extensions)
    for name, item in wanted.items():
        if name not in there:
            extensions.create_custom_resource_definition(item, _preload_content=False)
    names = [*wanted]

    def are_served() -> bool:
        known = _established(extensions)
        return all(known.get(name) for name in names)

    if not process_sets.await_condition(are_served, limit_seconds=ESTABLISH_SECONDS_MAX):
        raise RunError(
            where=", ".join(names),
            what=f"are not served after {ESTABLISH_SECONDS_MAX:.0f} s",
            remedy="see their conditions with `kubectl describe crd`",
        )


def _established(extensions: Any) -> dict[str, bool]:
    """By name, whether each definition of the API server is served. As JSON: the client's own
    objects of large definitions take it seconds."""
    answer = extensions.list_custom_resource_definition(_preload_content=False)
    return {
        item["metadata"]["name"]: any(
            condition["type"] == "Established" and condition["status"] == "True"
            for condition in item.get("status", {}).get("conditions") or ()
        )
        for item in json.loads(answer.data)["items"]
    }


def _files(name: str) -> list[Path]:
    """Where the files of an entry are kept."""
    wanted = FOREIGN[name]
    folder = (
        test_programs.cache_folder(os.environ) / test_programs.DEFINITIONS_FOLDER / wanted.folder
    )
    return [folder / Path(file).name for file in wanted.files]


def _are_there(files: Iterable[Path]) -> bool:
    return all(map(cached_files.is_intact, files))


@contextmanager
def _module(wanted: Foreign) -> Iterator[Path]:
    """The module's folder, unpacked for a moment: some are ten thousand files of no use here."""
    go = _find_go(wanted)
    with tempfile.TemporaryDirectory(prefix="definitions-") as workshop:
        cache = Path(workshop) / "modules"
        settings = {"GOMODCACHE": str(cache), "GOFLAGS": "-modcacherw -mod=mod", "GOWORK": "off"}
        program_runs.run(
            [go, "mod", "download", f"{wanted.module}@{wanted.version}"],
            where=f"go mod download {wanted.module}@{wanted.version}",
            remedy="see whether Go modules can be downloaded",
            seconds_max=DOWNLOAD_SECONDS_MAX,
            cwd=workshop,
            env={**os.environ, **settings},
        )
        yield cache / f"{wanted.module}@{wanted.version}"


def _find_go(wanted: Foreign) -> str:
    return program_runs.find(
        "go",
        where=f"the definitions of {wanted.module}",
        what="are not in the cache, and Go is not installed to download them",
        remedy="install Go, on Debian `apt-get install golang-go`",
    )
