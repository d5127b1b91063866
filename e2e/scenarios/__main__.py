"""`python -m scenarios [NAME ...]`: runs scenarios one after the other, or all of them.

The last line is `N passed, M failed`. `python -m scenarios book` makes tables and pictures of what
they have measured. Exit codes: 0 all passed; 1 one failed; 2 wrong usage or bad input; 130
interrupted.
"""

import argparse
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rekindle.errors import InputError, RekindleError
from rekindle_local import options
from scenarios import strategies
from testbed import locks
from testbed.exits import exit_code

__all__ = ["main"]

BOOK = "book"
FOLDER = Path("e2e-report")
RUN_MARK = ".scenario"


def main(arguments: Sequence[str]) -> int:
    """Runs what is named; returns the exit code."""
    if arguments and arguments[0] == BOOK:
        return exit_code(lambda: _book(_book_parser().parse_args(arguments[1:])))
    given = _parser().parse_args(arguments)
    # Whoever ends it otherwise than by Ctrl-C wants its clusters given back as well.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    return exit_code(lambda: _run(given.names, given.strategies.split(","), given.report))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m scenarios",
        description="Failures of whole clusters, with everything real.",
        epilog=f"`python -m scenarios {BOOK}` makes tables and pictures of their reports.",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="all that there are otherwise")
    parser.add_argument(
        "--strategies",
        default=strategies.INCREMENTAL,
        metavar="LIST",
        help=f"each scenario once with each of them, of {', '.join(strategies.NAMES)}",
    )
    parser.add_argument(
        "--report", type=Path, default=FOLDER, metavar="DIR", help="where reports go"
    )
    return parser


def _book_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"python -m scenarios {BOOK}",
        description="Put the figures of scenarios into e2e.md, and pictures beside it.",
        epilog=f"Example: python -m scenarios {BOOK} --pictures eight-of-ten,eight-of-ten-blocking",
    )
    parser.add_argument(
        "--report", type=Path, default=FOLDER, metavar="DIR", help=f"where reports are ({FOLDER})"
    )
    parser.add_argument(
        "--docs", type=Path, default=Path("docs"), metavar="DIR", help="where e2e.md is (docs)"
    )
    parser.add_argument(
        "--pictures", default="", metavar="RUNS", help="folders of runs, by commas; two by default"
    )
    return parser


def _book(given: argparse.Namespace) -> None:
    from scenarios import book, losses

    told = {name: scenario.lost for name, scenario in losses.SCENARIOS.items()}
    pictured = [name for name in given.pictures.split(",") if name]
    for path in book.write(given.report, given.docs, told, pictured):
        print(path)


def _run(names: Sequence[str], wanted: Sequence[str], folder: Path) -> int:
    # Only here: it imports clients, and Spark.
    from scenarios import losses, quickstart

    known = (*losses.SCENARIOS, quickstart.NAME)
    for name in names:
        options.check_choice("NAME", name, known)
    for strategy in wanted:
        options.check_choice("--strategies", strategy, strategies.NAMES)
    runs = [
        (name, strategy)
        for name in names or known
        # A page is for one strategy, whatever others run with.
        for strategy in (wanted if name in losses.SCENARIOS else [strategies.INCREMENTAL])
        if strategy != strategies.SPARK_ALONE or losses.SCENARIOS[name].is_compared
    ]
    if not runs:
        compared = [name for name, one in losses.SCENARIOS.items() if one.is_compared]
        raise InputError(
            where="--strategies",
            what=f"{strategies.SPARK_ALONE} runs in none of these scenarios",
            remedy=f"name some of: {', '.join(compared)}",
        )
    failed = 0
    for name, strategy in runs:
        began = time.monotonic()
        run = name if strategy == strategies.INCREMENTAL else f"{name}-{strategy}"
        with _fresh(folder / run) as directory:
            try:
                said = _perform(name, directory, strategy)
            except InputError:
                raise
            except Exception as error:
                # The others are run all the same, and what is no error in words is a defect.
                failed += 1
                said = f"broke: {error!r}"
                if isinstance(error, RekindleError):
                    said = f"failed: {error}"
                (directory / "trace.txt").write_text(traceback.format_exc(), encoding="utf-8")
        print(f"{run}: {said}; {time.monotonic() - began:.0f} s", flush=True)
    print(f"{len(runs) - failed} passed, {failed} failed")
    return 1 if failed else 0


def _perform(name: str, directory: Path, strategy: str) -> str:
    """Run a scenario; what to say of it."""
    from scenarios import losses, performing, quickstart

    if name == quickstart.NAME:
        return f"{quickstart.perform(directory):,} rows, all of them right"
    report = performing.perform(losses.SCENARIOS[name], directory, strategy=strategy)
    return f"weighted unavailability {report['weighted_unavailable_seconds']:.1f} s"


@contextmanager
def _fresh(directory: Path) -> Iterator[Path]:
    """An empty folder in place of what an earlier run has left there, and of nothing else.

    That one comes back where this one cannot begin for want of something. Raises `InputError` for a
    folder that no scenario has made, or in which one runs.
    """
    directory = directory.absolute()
    before = directory.with_name(f"{directory.name}.before")
    with ExitStack() as held:
        for folder in (directory, before):
            if folder.exists():
                _hold(folder, held)
        if directory.exists():
            shutil.rmtree(before, ignore_errors=True)
            directory.rename(before)
        directory.mkdir(parents=True)
        (directory / RUN_MARK).touch()
        _hold(directory, held)
        try:
            yield directory
        except InputError:
            if before.exists():
                shutil.rmtree(directory)
                before.rename(directory)
            raise
        shutil.rmtree(before, ignore_errors=True)


def _hold(folder: Path, held: ExitStack) -> None:
    """Keep the folder of a run for this process."""
    if not (folder / RUN_MARK).exists():
        raise InputError(
            where=str(folder),
            what="is there already, and no scenario has made it",
            remedy="name another folder by --report",
        )
    mark = locks.take(folder / RUN_MARK)
    if mark is None:
        raise InputError(
            where=str(folder),
            what="is of a scenario that runs",
            remedy="wait for its end, or name another folder by --report",
        )
    held.enter_context(mark)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
