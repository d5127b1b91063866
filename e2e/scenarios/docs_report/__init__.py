"""Results of scenarios as a part of docs/e2e.md: tables, and pictures of recoveries.

    scenario_folders  reads the folders of scenarios
    docs_tables       their figures as tables
    docs_page         the part of docs/e2e.md, and the files that go with it

`write` changes this part, its pictures and the kept runs in benchmarks/results/e2e/. From the
same folders it makes the same text. `python -m scenarios book` calls it.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from rekindle.model.errors import InputError
from scenarios.docs_report import docs_page, scenario_folders

__all__ = ["PICTURED", "write"]

# Runs that have a picture unless others are asked for.
PICTURED = ("eight-of-ten", "zone-loss")


def write(
    report: Path,
    docs: Path,
    kept: Path,
    losses: Mapping[str, str],
    pictured: Sequence[str] = (),
) -> list[Path]:
    """Write tables and pictures of all scenarios in the folder `report`; the files written.

    `docs` has the page and the pictures, `kept` has a record of each run, including earlier ones.

    `losses` says of each scenario, in the order of the tables, what is lost. `pictured` names runs
    by their folders; those of `PICTURED` that are there when left out. Raises `InputError`.
    """
    found = scenario_folders.read(report, kept, tuple(losses))
    fresh = {run.name for run in found.runs if run.directory}
    named = pictured or [name for name in PICTURED if name in fresh]
    files = docs_page.files(found, docs, kept, losses, named)
    for path, text in files.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise InputError(
                where=str(path), what=f"cannot be written ({error})", remedy="make it writable"
            ) from error
    return list(files)
