"""Facts about a run that none of its records contains.

Holds values and checks them; computes nothing. The demo fills it in, `verification` takes it
from `report.json` as it stands.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from rekindle.model.errors import InputError

# Plans use at most this share of a node's CPU (DESIGN 5).
NODE_CAP = 0.8
# Times its normal worst lag: above it a query is unavailable (DESIGN 2).
THETA = 1.2


@dataclass(frozen=True, slots=True)
class RunFacts:
    """The run as it was asked for, and the machine it ran on.

    `cpu_quota` is the number of cores of each node, `theta` the factor over the normal worst
    lag from which a query counts as unavailable; `stabilisation_seconds` is how long the
    coordinator waits for further returns before it plans.
    """

    commit: str
    seed: int
    machine: Any
    strategy: str
    engine: str
    buffering: str
    ordering: str
    nodes: int
    quota_enforced: bool
    cpu_quota: float
    theta: float = THETA
    stabilisation_seconds: float = 0.0

    @property
    def node_capacity_percent(self) -> float:
        """CPU of one node that plans may use, in percent of one core."""
        return self.cpu_quota * 100 * NODE_CAP

    @classmethod
    def from_record(cls, record: Mapping[str, Any], where: str = "report.json") -> "RunFacts":
        """Take the facts out of a report; InputError names a field that is not there."""
        missing = [field.name for field in fields(cls) if field.name not in record]
        if missing:
            raise InputError(
                where=f"{where}: {missing[0]}",
                what="is missing",
                remedy="restore the file from the run, or run the demo again",
            )
        facts = cls(**{field.name: record[field.name] for field in fields(cls)})
        facts.check(where)
        return facts

    def check(self, where: str) -> None:
        """Raise InputError for a number that no run can have."""
        numbers = {"nodes": self.nodes, "cpu_quota": self.cpu_quota, "theta": self.theta}
        for name, value in numbers.items():
            if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
                raise InputError(
                    where=f"{where}: {name}",
                    what=f"is {value!r}",
                    remedy="give a number above 0",
                )
