"""The schema of the manifest fields that preflight reads.

A manifest that no API server has seen may have a text where a list belongs. `check` finds that
before anything is read, and names the field. Whether the values fit together is for the other
modules. Pure; the plugin calls it.
"""

from collections.abc import Mapping
from typing import Any, Literal, TypedDict

import msgspec

from rekindle.model.errors import InputError
from rekindle_operator.cluster.pods import APACHE, KUBEFLOW

Record = Mapping[str, Any]
Scalar = str | int | float | bool | None
Texts = dict[str, Scalar] | None
TYPES = {"object": "a mapping", "array": "a list", "str": "text", "int": "a whole number"}
SHOWN_MAX = 60


class Owner(TypedDict, total=False):
    """An owner of a pod."""

    kind: str | None
    controller: bool | None


class ManifestMetadata(TypedDict, total=False):
    """Of anything."""

    labels: Texts
    annotations: Texts
    ownerReferences: list[Owner] | None


class ManifestClaim(TypedDict, total=False):
    """The claim of a volume, or the ConfigMap."""

    claimName: str | None
    name: str | None


class Volume(TypedDict, total=False):
    """A volume of a pod."""

    name: str | None
    persistentVolumeClaim: ManifestClaim | None
    configMap: ManifestClaim | None


class Quantities(TypedDict, total=False):
    """Resources of a container."""

    requests: Texts
    limits: Texts


class ManifestContainer(TypedDict, total=False):
    """A container."""

    name: str | None
    command: list[Scalar] | None
    args: list[Scalar] | None
    resources: Quantities | None


class Affinity(TypedDict, total=False):
    """What keeps pods apart."""

    podAntiAffinity: dict[str, Any] | None


class PodSpec(TypedDict, total=False):
    """A pod, or the template of one."""

    containers: list[ManifestContainer] | None
    initContainers: list[ManifestContainer] | None
    volumes: list[Volume] | None
    affinity: Affinity | None
    topologySpreadConstraints: list[dict[str, Any]] | None


class PodTemplate(TypedDict, total=False):
    """The template of a pod."""

    metadata: ManifestMetadata | None
    spec: PodSpec | None


class ManifestPod(TypedDict, total=False):
    """A pod."""

    metadata: ManifestMetadata
    spec: PodSpec | None
    status: dict[str, Any] | None


class KubeflowRole(TypedDict, total=False):
    """Driver or executor of kubeflow's SparkApplication."""

    labels: Texts
    podName: str | None
    template: PodTemplate | None
    volumeMounts: list[Volume] | None
    initContainers: list[ManifestContainer] | None
    sidecars: list[ManifestContainer] | None
    affinity: Affinity | None
    topologySpreadConstraints: list[dict[str, Any]] | None


class KubeflowRestart(TypedDict, total=False):
    """Whether its driver is started again."""

    type: Literal["Never", "OnFailure", "Always"] | None
    onFailureRetries: int | None


class KubeflowSpec(TypedDict, total=False):
    """What kubeflow's SparkApplication wants."""

    sparkConf: Texts
    driver: KubeflowRole | None
    executor: KubeflowRole | None
    restartPolicy: KubeflowRestart | None
    dynamicAllocation: dict[str, Scalar] | None
    volumes: list[Volume] | None


class KubeflowApplication(TypedDict, total=False):
    """kubeflow's SparkApplication."""

    metadata: ManifestMetadata
    spec: KubeflowSpec | None
    status: dict[str, Any] | None


class ApacheRole(TypedDict, total=False):
    """Driver or executor of apache's SparkApplication."""

    podTemplateSpec: PodTemplate | None


class ApacheRestart(TypedDict, total=False):
    """Whether its driver is started again."""

    restartPolicy: str | None
    maxRestartAttempts: int | None
    restartCounterResetMillis: int | None


class ApacheTolerations(TypedDict, total=False):
    """What it puts up with."""

    restartConfig: ApacheRestart | None


class ApacheSpec(TypedDict, total=False):
    """What apache's SparkApplication wants."""

    sparkConf: Texts
    driverSpec: ApacheRole | None
    executorSpec: ApacheRole | None
    applicationTolerations: ApacheTolerations | None


class ApacheApplication(TypedDict, total=False):
    """apache's SparkApplication."""

    metadata: ManifestMetadata
    spec: ApacheSpec | None
    status: dict[str, Any] | None


FORMS: Mapping[tuple[str, str], Any] = {
    ("SparkApplication", KUBEFLOW): KubeflowApplication,
    ("SparkApplication", APACHE): ApacheApplication,
    ("Pod", ""): ManifestPod,
}


def check(body: Record) -> None:
    """Nothing for an object that can be read; else InputError with its field."""
    group = str(body.get("apiVersion", "")).rpartition("/")[0]
    form = FORMS.get((str(body.get("kind")), group))
    if form is None:
        return
    try:
        msgspec.convert(body, form)
    except msgspec.ValidationError as error:
        what, _, path = str(error).partition(" - at `")
        raise InputError(
            where=path.rstrip("`").removeprefix("$").removeprefix(".") or str(body.get("kind")),
            what=_said(what),
            remedy="write what `kubectl apply --dry-run=server` accepts",
        ) from None


def _said(what: str) -> str:
    """What is wrong, in words of YAML."""
    if what.startswith("Invalid enum value"):
        return f"{what.removeprefix('Invalid enum value ')[:SHOWN_MAX]} is no value of it"
    expected, _, got = what.removeprefix("Expected ").partition(", got ")
    wanted = " or ".join(
        TYPES.get(part.strip("`"), part.strip("`"))
        for part in expected.split(" | ")
        if part.strip("`") != "null"
    )
    return f"is {TYPES.get(got.strip('`'), got.strip('`'))}, and has to be {wanted}"
