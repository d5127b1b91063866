"""What kubeflow's webhook adds to pods of drivers and executors, as pod templates for spark-submit.

The operator adds these after Spark has made the pod; Spark keeps what a template has, so the pods
come out the same.
"""

from typing import Any

from submission.submission_steps import Body, only

POD_FIELDS = {
    "affinity": "affinity",
    "dnsConfig": "dnsConfig",
    "hostAliases": "hostAliases",
    "initContainers": "initContainers",
    "nodeSelector": "nodeSelector",
    "podSecurityContext": "securityContext",
    "priorityClassName": "priorityClassName",
    "schedulerName": "schedulerName",
    "terminationGracePeriodSeconds": "terminationGracePeriodSeconds",
    "tolerations": "tolerations",
}
CONTAINER_FIELDS = ("env", "envFrom", "lifecycle", "securityContext", "volumeMounts")
FIELDS = (*POD_FIELDS, *CONTAINER_FIELDS, "sidecars")


def pod_template(
    role: Body, volumes: list[Body], *, container: str, owner: dict[str, Any]
) -> dict[str, Any]:
    """The template of one role's pods: its fields, the volumes that it mounts, its owner."""
    mounted = {mount["name"] for mount in role.get("volumeMounts") or ()}
    spark = {"name": container, **{key: role[key] for key in CONTAINER_FIELDS if key in role}}
    spec = {there: role[field] for field, there in POD_FIELDS.items() if field in role}
    spec["containers"] = [spark, *(role.get("sidecars") or ())]
    found = [volume for volume in volumes if volume["name"] in mounted]
    if found:
        spec["volumes"] = found
    for volume in found:
        only(f"volume {volume['name']}", volume, ("name", *VOLUMES))
    return {"metadata": {"ownerReferences": [owner]}, "spec": spec}


VOLUMES = ("configMap", "emptyDir", "hostPath", "nfs", "persistentVolumeClaim", "secret")
