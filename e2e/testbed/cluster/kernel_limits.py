"""A limit of the kernel that many kubelets under one user reach: lifted for a cluster.

Each kubelet and containerd watches files by some eight instances of inotify; a user may have 128 by
default, which is enough for a dozen nodes. What the limit was stands in the record of
cluster_lock.py, so that it is put back even after a cluster that was killed.
"""

from pathlib import Path

_INSTANCES = Path("/proc/sys/fs/inotify/max_user_instances")
_INSTANCES_MIN = 8_192


def instances() -> int:
    """How many a user may have now."""
    return int(_INSTANCES.read_text(encoding="ascii"))


def lift() -> None:
    """Let a user have enough of them for all nodes that a cluster can have."""
    if instances() < _INSTANCES_MIN:
        _INSTANCES.write_text(str(_INSTANCES_MIN), encoding="ascii")


def put_back(before: int) -> None:
    """As it was."""
    _INSTANCES.write_text(str(before), encoding="ascii")
