"""Which rows were left out as dead letters: committed, and the same in every repeat.

    a host's report ──take_in──► commit record: choices ──read_back──► the next driver's progress
                                                                              │
    a repeat of a committed epoch leaves out exactly these rows ◄── request ──┘

A row is left out after some tries, so what was away for a moment decides which. That is a choice,
and output made with it counts: a repeat that chose otherwise would differ from it, for ever. Where
output waits for a checkpoint (`output_commit`), a repeat may choose anew. `dead_letter_sieve`
chooses and repeats, and a source of the records that it cannot decode (`source_reading`); the
places of these are counted in offsets.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rekindle_spark.checkpoint.restore_points import RestorePoints
from rekindle_spark.driver import stopped_branches
from rekindle_spark.driver.partition_table import PartitionTable
from rekindle_spark.pipeline.chains import Chain
from rekindle_spark.pipeline.program import Program
from rekindle_spark.store.checkpoint_store import StoreHistory
from rekindle_spark.user_code.dead_letter_sieve import ENDING, LeftOutRows

Choices = dict[tuple[int, int], dict[str, LeftOutRows]]


def take_in(
    progress: PartitionTable,
    committed: Mapping[str, int],
    number: int,
    epochs: Iterable[Sequence[Any]],
) -> list[list[Any]]:
    """Enter the choices of a partition's epochs, as its host reports them, which are about to be
    committed; what the commit record says of those that are so for the first time."""
    chain, said = progress.program.owner[number], list[list[Any]]()
    steps = _steps(chain)
    for epoch, _, _, _, _, *rest in epochs if steps else ():
        made = rest[0] if rest else {}
        known = progress.choices.setdefault((number, epoch), {})
        for step in steps:
            left, alone = made.get(step, ((), ()))
            known.setdefault(step, LeftOutRows(tuple(left), tuple(alone)))
            output = _output(step, number - chain.first)
            is_new = step in chain.letters and epoch > committed.get(output, 0)
            if step in made and is_new:
                said.append([output, epoch, list(left), list(alone)])
    return said


def read_back(program: Program, history: StoreHistory, points: RestorePoints) -> Choices:
    """What is known of epochs that will be run again: of each step with dead letters, and of its
    copies in branches. Of letters of earlier versions it is not known which rows they were."""
    found: Choices = {}
    said = history.fold.choices
    for part, epoch, step, outputs in _finished(program, history, points):
        places, *others = (said.get(output, {}).get(epoch, ((), ())) for output in outputs)
        if places is not None and None not in others:
            choice = LeftOutRows(*map(tuple, places))
            found.setdefault((part, epoch), {}).setdefault(step, choice)
    return found


def known(progress: PartitionTable, part: int, epoch: int) -> dict[str, LeftOutRows]:
    """The rows that a partition leaves out again in an epoch, by step. A branch behind a source
    leaves out the same rows as the source, where the source ran the epoch first."""
    program = progress.program
    chain, own = program.owner[part], progress.choices.get((part, epoch), {})
    if not chain.reads:
        return own
    source = next(one for one in program.chains if one.name == chain.reads)
    first = progress.choices.get((source.first + part - chain.first, epoch), {})
    names = {chain.reads: chain.name, **{step: step for step in chain.copies}}
    return {**{names[step]: one for step, one in first.items() if step in names}, **own}


def _finished(
    program: Program, history: StoreHistory, points: RestorePoints
) -> Iterator[tuple[int, int, str, Sequence[str]]]:
    """What is finished and may be run again: partition, epoch, and each step with dead letters and
    the output of these. The root of a branch has the source's output behind its own: where nothing
    is known of the one, nothing is of the other. A source has no state to restore, so the
    checkpoint is its restore point; for readers that go on from an older one it runs epochs again
    from there."""
    for name in history.fold.finished.keys() & program.numbers.keys():
        number = program.numbers[name]
        chain = program.owner[number]
        for known, reached in sorted(history.fold.finished[name].items()):
            heirs = stopped_branches.heirs(program, history.branches, known, chain)
            for one in (chain, *heirs):
                part = one.first + number - chain.first
                for step in _steps(one):
                    names = (chain.name, chain.source) if step == one.name else (step,)
                    outputs = [_output(name, number - chain.first) for name in names]
                    end = reached.parts.get(outputs[0], reached.last)
                    for epoch in reached.counted(points.oldest, end):
                        yield part, epoch, step, outputs


def _steps(chain: Chain) -> list[str]:
    """Steps of a chain that have dead letters, those that it only has copies of too."""
    return [step.name for step in (chain.root, *chain.steps) if step.dead_letters]


def _output(step: str, index: int) -> str:
    """The output of a step's dead letters in a partition."""
    return f"{step}{ENDING}/{index}"
