"""What many trials came to: the file `chaos.json`, and a line for each trial.

`faults` counts faults by kind, `rows_checked` the rows that the queries' answers have.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from rekindle.verification import batch_check
from rekindle_chaos.trial_run import TrialVerdict
from rekindle_chaos.trials import Fault


def summary(
    verdicts: Sequence[TrialVerdict], commit: str, machine: Any, sabotage: str | None = None
) -> dict[str, Any]:
    """The content of `chaos.json`; `sabotage` is what was broken on purpose."""
    faults: Counter[str] = Counter()
    for verdict in verdicts:
        faults.update(verdict.faults)
    return {
        "version": 1,
        "commit": commit,
        "machine": machine,
        "break": sabotage,
        "runs": len(verdicts),
        "seeds": [verdict.trial.seed for verdict in verdicts],
        "faults": dict(sorted(faults.items())),
        "rows_checked": sum(verdict.counts.expected for verdict in verdicts),
        **{
            kind: sum(verdict.counts.bad[kind] for verdict in verdicts)
            for kind in batch_check.KINDS
        },
        "failures": {
            str(verdict.trial.seed): verdict.failure for verdict in verdicts if verdict.failure
        },
    }


def line(verdict: TrialVerdict) -> str:
    """One trial in words."""
    trial = verdict.trial
    harm = ", ".join(f"{number} {kind}" for kind, number in sorted(verdict.faults.items()))
    result = verdict.failure or f"{verdict.counts.expected} rows right"
    return f"seed {trial.seed}: {len(trial.steps)} steps, {harm or 'no fault'}: {result}"


def schedule(faults: Iterable[Fault]) -> str:
    """Faults in words, one after the other."""
    return "; ".join(
        f"{fault.at:g} s {fault.kind}"
        + (f" ({fault.what})" if fault.what else "")
        + (f" {', '.join(map(str, fault.nodes))}" if fault.nodes else "")
        + (f" for {fault.seconds:g} s" if fault.seconds else "")
        for fault in faults
    )
