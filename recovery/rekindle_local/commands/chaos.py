"""`rekindle chaos`: random pipelines under random faults, checked row by row.

`chaos.session` runs the trials; here they are drawn, or read from a file.
"""

from pathlib import Path
from typing import Annotated

import typer

from rekindle_local import options

__all__ = ["chaos"]

SEEDS_MAX = 10_000


def chaos(
    seeds: Annotated[str, typer.Option(help="One seed, or FIRST..LAST.")] = "1..5",
    minutes: Annotated[float, typer.Option(help="Minutes of input and faults of a seed.")] = 1.0,
    processes: Annotated[
        bool, typer.Option(help="With coordinator, sidecar and ZooKeeper, which are harmed too.")
    ] = False,
    trial: Annotated[
        Path | None, typer.Option(help="A file that an earlier run has kept, in place of seeds.")
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(help="A new directory for the report; else it is kept only on failure."),
    ] = None,
    sabotage: Annotated[
        str | None,
        typer.Option(
            "--break",
            metavar="KIND",
            help="Break this on purpose, to see that it is found: order, dedupe, fence, restore, "
            "offset-log, trim-early, manifest, watermark.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Run random pipelines under random faults, and check every row.

    With --break there has to be a seed that finds it; the first one ends the run.

    Example: rekindle chaos --seeds 1..10 --report out
    """
    numbers = options.seeds(seeds, SEEDS_MAX)
    options.check_range("--minutes", minutes, 0.3, 60.0)
    from rekindle_local.chaos import drawing, trials
    from rekindle_local.chaos.sabotage import Sabotage
    from rekindle_local.chaos.session import Session

    if sabotage is not None:
        options.check_choice("--break", sabotage, tuple(Sabotage))
    if trial is not None:
        wanted = [trials.load(trial)]
    else:
        wanted = [drawing.draw(seed, minutes=minutes, processes=processes) for seed in numbers]
    with options.report_directory(report) as directory:
        broken = None if sabotage is None else Sabotage(sabotage)
        Session(directory, broken, typer.echo).run(wanted)
