"""The report of a run: every figure of `report.json`, computed from the run's own records.

    facts           what no record tells: machine, seed, strategy, cluster
    inputs          `input.json` as values: files, offsets, closures, priorities
    availability    per query: lag, unavailable intervals, lost, back, epochs late
    bound           what exact plans at every return with no restore time would give
    planned         the plans of the run, and the exact plan for the bound
    skipped         what each plan left waiting, and why
    machine_limits  when the machine could not give the CPU that was wanted
    computation     all of it together, `compute`

Pure: opens no file. The demo calls `compute` to write `report.json`, `rekindle verify` calls it
again on the other files and compares. The formats are in docs/report.md.
"""

from rekindle.report.computation import VERSION, compute, weighted
from rekindle.report.facts import THETA, RunFacts
from rekindle.report.inputs import InputFile, Inputs

__all__ = ["THETA", "VERSION", "InputFile", "Inputs", "RunFacts", "compute", "weighted"]
