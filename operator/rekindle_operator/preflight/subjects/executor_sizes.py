"""Spark's requests to Kubernetes by its settings: CPU and memory of a pod, number of executors.

As Spark's documentation has it: memory is the heap, what PySpark may take, and an overhead of a
tenth (four tenths for Python and R), 384 MiB at least. Pure; `workloads` calls it.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from rekindle.model.errors import InputError
from rekindle_operator.api import quantities

MEBIBYTE = 2**20
EXECUTORS_DEFAULT = 2
OVERHEAD_MIN_MEBIBYTES = 384
_MEMORY = re.compile(r"(\d+)\s*([kmgtp]?)(?:i?b)?", re.IGNORECASE)
_POWERS: Mapping[str, int] = {
    "": 2**20,
    **{unit: 2 ** (10 * power) for power, unit in enumerate("kmgtp", start=1)},
}
Conf = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class QuotaDemand:
    """What pods take of a namespace's quota: requests, and limits of CPU where there are any."""

    pods: int = 0
    cpu_millis: int = 0
    memory_bytes: int = 0
    cpu_limit_millis: int = 0

    def __add__(self, other: "QuotaDemand") -> "QuotaDemand":
        return QuotaDemand(
            self.pods + other.pods,
            self.cpu_millis + other.cpu_millis,
            self.memory_bytes + other.memory_bytes,
            self.cpu_limit_millis + other.cpu_limit_millis,
        )

    def times(self, count: int) -> "QuotaDemand":
        """So many of them."""
        return QuotaDemand(
            self.pods * count,
            self.cpu_millis * count,
            self.memory_bytes * count,
            self.cpu_limit_millis * count,
        )


NOTHING = QuotaDemand()


def executor_demand(conf: Conf, *, python: bool) -> QuotaDemand:
    """What one executor requests; InputError for a setting that is no number."""
    return _demand(conf, "executor", python=python)


def driver_demand(conf: Conf, *, python: bool) -> QuotaDemand:
    """What the driver requests; InputError for a setting that is no number."""
    return _demand(conf, "driver", python=python)


def executors_wanted(conf: Conf) -> int:
    """How many executors there are at most; InputError for a setting that is no number."""
    instances = _whole(conf, "spark.executor.instances", EXECUTORS_DEFAULT)
    if conf.get("spark.dynamicAllocation.enabled", "").lower() != "true":
        return instances
    return max(instances, _whole(conf, "spark.dynamicAllocation.maxExecutors", instances))


def _demand(conf: Conf, role: str, *, python: bool) -> QuotaDemand:
    cores = conf.get(f"spark.kubernetes.{role}.request.cores") or conf.get(f"spark.{role}.cores")
    heap = _memory(conf, f"spark.{role}.memory", "1g")
    beside = 0
    if python and role == "executor":
        beside = _memory(conf, "spark.executor.pyspark.memory", "0")
    return QuotaDemand(
        pods=1,
        cpu_millis=quantities.cpu_millis(cores or "1"),
        memory_bytes=heap + beside + _overhead(conf, role, heap, python=python),
        cpu_limit_millis=quantities.cpu_millis(
            conf.get(f"spark.kubernetes.{role}.limit.cores") or "0"
        ),
    )


def _overhead(conf: Conf, role: str, heap: int, *, python: bool) -> int:
    fixed = conf.get(f"spark.{role}.memoryOverhead")
    if fixed:
        return _memory(conf, f"spark.{role}.memoryOverhead", "0")
    names = (f"spark.{role}.memoryOverheadFactor", "spark.kubernetes.memoryOverheadFactor")
    name = next((name for name in names if conf.get(name)), names[0])
    try:
        factor = float(conf.get(name) or (0.4 if python else 0.1))
    except ValueError:
        factor = math.nan
    if not 0 <= factor < math.inf:
        raise _unreadable(name, conf[name], "a factor, such as 0.1")
    return max(int(factor * heap), OVERHEAD_MIN_MEBIBYTES * MEBIBYTE)


def _memory(conf: Conf, name: str, default: str) -> int:
    """Bytes; a number without a unit is of mebibytes."""
    text = conf.get(name) or default
    found = _MEMORY.fullmatch(text.strip())
    if found is None:
        raise _unreadable(name, text, "a number with a unit, such as 4g")
    return int(found[1]) * _POWERS[found[2].lower()]


def _whole(conf: Conf, name: str, default: int) -> int:
    text = conf.get(name)
    if not text:
        return default
    if not text.strip().isdecimal():
        raise _unreadable(name, text, "a whole number")
    return int(text)


def _unreadable(name: str, text: str, wanted: str) -> InputError:
    return InputError(where=name, what=f"is {text!r:.60}", remedy=f"give {wanted}")
