"""Quantities of Kubernetes, and the total requests of a pod.

A node's CPU is accounted for as the scheduler does it, so that what others have requested is never
planned on: effective requests, with init containers, sidecars, overhead, pod-level resources, and
resizes that are under way. What a pod really uses is not known here. Pure; `pods` and `nodes` call
it.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from decimal import ROUND_CEILING, Decimal
from functools import lru_cache
from typing import Any

from rekindle.model.errors import InputError

Amount = Callable[[object], int]
Record = Mapping[str, Any]

_QUANTITY = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))([numkMGTPE]|[KMGTPE]i|[eE][+-]?\d{1,6})?")
_BELOW_ONE = {unit: Decimal(1000) ** -power for power, unit in enumerate("mun", start=1)}
_DECIMAL = {unit: Decimal(1000) ** power for power, unit in enumerate("kMGTPE", start=1)}
_BINARY = {f"{unit}i": Decimal(1024) ** power for power, unit in enumerate("KMGTPE", start=1)}
_UNITS = {"": Decimal(1), **_BELOW_ONE, **_DECIMAL, **_BINARY}
# The API server caps what is larger, whatever the unit.
_LARGEST = Decimal(2**63 - 1)


@lru_cache(maxsize=4096)
def _value(text: str) -> Decimal:
    found = _QUANTITY.fullmatch(text.strip())
    if found is None:
        raise InputError(
            where=f"quantity {text[:60]!r}",
            what="is not a quantity of Kubernetes",
            remedy="write a number with a unit, such as 500m, 2 or 512Mi",
        )
    number, unit = found[1], found[2] or ""
    # E alone is a unit, Ei too; with a number behind it, it is an exponent.
    amount = Decimal(number) * _UNITS[unit] if unit in _UNITS else Decimal(f"{number}{unit}")
    return max(-_LARGEST, min(_LARGEST, amount))


def exact(quantity: object) -> Decimal:
    """Any resource in its own unit: cores, bytes, pieces; InputError for none."""
    return _value(str(quantity))


def cpu_millis(quantity: object) -> int:
    """CPU in thousandths of a core, rounded up as the scheduler does; InputError for none."""
    return int((_value(str(quantity)) * 1000).to_integral_value(ROUND_CEILING))


def memory_bytes(quantity: object) -> int:
    """Memory in bytes, rounded up; InputError for none."""
    return int(_value(str(quantity)).to_integral_value(ROUND_CEILING))


def requested(body: Record, resource: str, amount: Amount) -> int:
    """What a pod takes from its node: its effective request of "cpu" or "memory"."""
    spec, status = body.get("spec") or {}, body.get("status") or {}
    running = _allocated(status.get("containerStatuses"), resource, amount)
    beside = peak = 0
    for container in spec.get("initContainers") or ():
        own = _request(container, resource, amount)
        peak = max(peak, beside + own)
        beside += own if container.get("restartPolicy") == "Always" else 0
    together = sum(
        max(_request(container, resource, amount), running.get(container.get("name"), 0))
        for container in spec.get("containers") or ()
    )
    own = _request(spec, resource, amount) or max(peak, beside + together)
    overhead = (spec.get("overhead") or {}).get(resource)
    return own + (amount(overhead) if overhead is not None else 0)


def limited(container: Record, resource: str, amount: Amount) -> int:
    """A container's limit; 0 without one."""
    limit = ((container.get("resources") or {}).get("limits") or {}).get(resource)
    return amount(limit) if limit is not None else 0


def _request(holder: Record, resource: str, amount: Amount) -> int:
    """The request of a container, or of a pod as a whole. The API server has written a limit that
    stands alone into the request as well."""
    request = ((holder.get("resources") or {}).get("requests") or {}).get(resource)
    return amount(request) if request is not None else 0


def _allocated(statuses: Iterable[Record] | None, resource: str, amount: Amount) -> dict[Any, int]:
    """By container, what the kubelet has set apart: while one is made smaller, still more than its
    spec says."""
    found: dict[Any, int] = {}
    for status in statuses or ():
        held = (status.get("allocatedResources") or {}).get(resource)
        set_apart = amount(held) if held is not None else 0
        found[status.get("name")] = max(set_apart, _request(status, resource, amount))
    return found
