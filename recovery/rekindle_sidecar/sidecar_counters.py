"""What the sidecar counts, from its start.

`sidecar_session` and `http_api` count, `sidecar_metrics` shows.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["SidecarCounters"]


@dataclass(slots=True)
class SidecarCounters:
    """`reports` by kind, `repeated` those of them that were no news, `directives` given out,
    `acks` by outcome, `refusals` by cause. `late_rows` by step are the driver's own count."""

    reports: Counter[str] = field(default_factory=Counter)
    repeated: int = 0
    directives: int = 0
    acks: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    late_rows: Mapping[str, int] = field(default_factory=dict)
