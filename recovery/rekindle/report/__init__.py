"""The report of a run: every figure of `report.json`, computed from the run's own records.

    input_record        `input.json` as values: files, offsets, closures, priorities
    availability        per query: lag, unavailable intervals, lost, back, epochs late
    machine_limits      when the machine could not give the CPU that was wanted
    report_figures      all of it together, `compute`

Pure: opens no file. The demo calls `compute` to write `report.json`, `rekindle verify` calls it
again on the other files and compares. The formats are in docs/report.md.

    lag                 the lag of a query over time, and when it is unavailable
"""

from rekindle.report.input_record import THETA, InputFile, Inputs, RunFacts
from rekindle.report.report_figures import VERSION, compute, weighted

__all__ = ["THETA", "VERSION", "InputFile", "Inputs", "RunFacts", "compute", "weighted"]
