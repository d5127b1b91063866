"""`rekindle chaos`: random pipelines under random faults, checked row by row.

`chaos.session` runs the trials; here they are drawn, or read from a file.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rekindle_cli import cli_options

if TYPE_CHECKING:
    from rekindle_chaos.sabotage import Sabotage
    from rekindle_chaos.trials import ChaosTrial


SEEDS, SEEDS_MAX = "1..5", 10_000
MINUTES = 1.0
MODES = ("always", "adaptive")

SeedsOption = Annotated[
    str | None, typer.Option(help="One seed, or FIRST..LAST.", show_default=SEEDS)
]
MinutesOption = Annotated[
    float | None,
    typer.Option(help="Minutes of input and faults of a seed.", show_default=f"{MINUTES:g}"),
]
ProcessesOption = Annotated[
    bool, typer.Option(help="With coordinator, sidecar and ZooKeeper, which are harmed too.")
]
FaultsOption = Annotated[
    str | None,
    typer.Option(
        metavar="KINDS",
        help="Kinds of faults, separated by commas.",
        show_default="all, or with --break those that show it",
    ),
]
OrderingOption = Annotated[
    str | None,
    typer.Option(
        metavar="MODE",
        help="always or adaptive, and the same of buffering.",
        show_default="the seed's, or with --break one that shows it",
    ),
]
LinksOption = Annotated[
    bool, typer.Option(help="Links between nodes are cut too. Needs root and iptables.")
]
KafkaOption = Annotated[
    bool, typer.Option(help="With topics of Kafka on three brokers, which are harmed too.")
]
BreakOption = Annotated[
    str | None,
    typer.Option(
        "--break",
        metavar="KIND",
        help="Break this on purpose, to see that it is found: order, dedupe, fence, restore, "
        "offset-log, trim-early, manifest, watermark, late-checkpoint, forgotten-letter, "
        "unchecked-frame.",
        show_default=False,
    ),
]


def chaos(
    seeds: SeedsOption = None,
    minutes: MinutesOption = None,
    processes: ProcessesOption = False,
    faults: FaultsOption = None,
    ordering: OrderingOption = None,
    links: LinksOption = False,
    kafka: KafkaOption = False,
    trial: Annotated[
        Path | None, typer.Option(help="A file that an earlier run has kept, in place of seeds.")
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(help="A new directory for the report; else it is kept only on failure."),
    ] = None,
    sabotage: BreakOption = None,
) -> None:
    """Run random pipelines under random faults, and check every row.

    With --break there has to be a seed that finds it; the first one ends the run.

    Example: rekindle chaos --seeds 1..10 --report out
    """
    from rekindle_chaos import link_faults, trial_generator, trial_parser
    from rekindle_chaos.sabotage import Sabotage
    from rekindle_chaos.trial_session import Session

    if sabotage is not None:
        cli_options.check_choice("--break", sabotage, tuple(Sabotage))
    broken = None if sabotage is None else Sabotage(sabotage)
    if trial is not None:
        given = {"--seeds": seeds, "--minutes": minutes, "--processes": processes or None}
        given |= {"--faults": faults, "--links": links or None, "--kafka": kafka or None}
        given |= {"--ordering": ordering}
        for option, value in given.items():
            cli_options.check_absent(option, value, "--trial, which says it")
        wanted: Sequence[ChaosTrial] = [trial_parser.read(trial)]
    else:
        draw = partial(trial_generator.draw, processes=processes, links=links, kafka=kafka)
        known = trial_generator.known(processes=processes, links=links, kafka=kafka)
        wanted = _drawn(seeds, minutes, faults, ordering, broken, draw, tuple(known))
        if links:
            link_faults.check_possible()
    with cli_options.report_directory(report) as directory:
        Session(directory, broken, typer.echo).run(wanted)


def _drawn(
    seeds: str | None,
    minutes: float | None,
    faults: str | None,
    ordering: str | None,
    broken: "Sabotage | None",
    draw: "Callable[..., ChaosTrial]",
    known: Sequence[str],
) -> "list[ChaosTrial]":
    """The trials of the seeds that are asked for, with some of the `known` faults. Raises
    InputError."""
    from rekindle_chaos import trial_generator

    numbers = cli_options.seeds(SEEDS if seeds is None else seeds, SEEDS_MAX)
    lasting = MINUTES if minutes is None else minutes
    cli_options.check_range("--minutes", lasting, 0.3, 60.0)
    only = None if broken is None else [*broken.faults, *trial_generator.PROCESS_KINDS]
    if faults is not None:
        only = cli_options.choices("--faults", faults, known)
    if ordering is not None:
        cli_options.check_choice("--ordering", ordering, MODES)
    elif broken is not None:
        ordering = broken.ordering
    return [draw(seed, minutes=lasting, only=only, ordering=ordering) for seed in numbers]
