"""Moves of live partitions from one executor to another, between two epochs.

    ordered ──a checkpoint that has the states of all──► moved, a step in each epoch
       └──a loss, a pause, another plan──► dropped

A moved partition stays live: the next epoch's job has its new executor read the state from the
checkpoint and run the few epochs since, whose input is retained, together with the new one. What
these give is what they gave before, by digest, and is not committed again. So no query misses more
than an epoch that takes a little longer, and steps are small to keep it so. Sources have no state
and just go on. Called by `control_loop` and by the epoch loop.
"""

from collections import Counter
from collections.abc import Mapping

from rekindle.model.reasons import Reason
from rekindle.model.switch_mode import ON
from rekindle_spark.checkpoint import durable_input_job
from rekindle_spark.driver.driver_context import DriverContext, Moves

# How old a checkpoint may be that moves start from, in epochs: they are all run again.
BEHIND_EPOCHS_MAX = 10
# Behind how many epochs a checkpoint is taken for moves that have a deadline.
HURRIED_EPOCHS_MIN = 3
# What one executor takes over in a step: of the partitions that it would have if all had as many,
# times the epochs that are run again; and bytes of state, or one partition.
STEP_SHARE = 0.3
STEP_BYTES_MAX = 64 * 2**20


def order(application: DriverContext, placement: Mapping[str, str], reason: str) -> None:
    """Take moves in place of any that have not been made."""
    with application.lock:
        numbers = application.program.numbers
        nodes = {numbers[name]: node for name, node in placement.items() if name in numbers}
        application.moves = Moves(nodes, application.losses, application.plan_epoch, reason)


def are_possible(application: DriverContext) -> bool:
    """Whether partitions can be moved at all: what they run again must be there, and the same."""
    certain = application.ordering == ON and not application.program.uncertain
    return application.buffering == ON and certain and not application.staged


def pending(application: DriverContext) -> dict[int, str]:
    """Partition number -> node for what has yet to be moved."""
    moves, placed = application.moves, application.progress.placed
    known = (application.losses, application.plan_epoch)
    if moves is None or known != (moves.losses, moves.plan_epoch) or application.paused:
        return {}
    executors = {node: executor for executor, node in application.executors.items()}
    return {
        number: node
        for number, node in moves.nodes.items()
        if node in executors and placed.get(number) not in (None, executors[node])
    }


def hurries_checkpoint(application: DriverContext) -> bool:
    """Whether to take a checkpoint before its time: moves off a node that is announced to go wait,
    and the newest checkpoint is some epochs old."""
    moves = application.moves
    if moves is None or moves.reason != Reason.LOSS_ANNOUNCED:
        return False
    with application.lock:
        behind = application.newest - application.progress.restore_points.newest
        return behind >= HURRIED_EPOCHS_MIN and bool(pending(application))


def wait_for_jobs(application: DriverContext, state_bytes: Mapping[int, int]) -> bool:
    """Whether moves would be made if no job of partitions that are behind were on its way."""
    with application.lock:
        wanted = pending(application)
        return bool(wanted) and bool(_step(application, wanted, state_bytes))


def carry_out(application: DriverContext, state_bytes: Mapping[int, int]) -> None:
    """Make as many moves as one step may have, if this is a moment for it: no state is in a job.

    `state_bytes` is what the store holds of each partition's state.
    """
    with application.lock:
        wanted = pending(application)
        is_time = wanted and not application.claimed
        step = _step(application, wanted, state_bytes) if is_time else {}
        executors = {node: executor for executor, node in application.executors.items()}
        before = dict(application.progress.placed)
        for number, node in step.items():
            application.progress.move(number, executors[node])
        if not step:
            return
        application.moved_at = application.newest
    assert application.moves is not None
    names = application.program.partition_names
    application.events.write(
        "moved",
        placement={names[number]: node for number, node in sorted(step.items())},
        origin={names[number]: application.executors[before[number]] for number in sorted(step)},
        waiting=len(wanted) - len(step),
        reason=application.moves.reason,
        epoch=application.newest,
    )


def _step(
    application: DriverContext, wanted: Mapping[int, str], state_bytes: Mapping[int, int]
) -> dict[int, str]:
    """The moves of one step, in the order of the order; none while something is behind, or the
    checkpoint is too old, and none to a host that is close to its budget of memory, or that has run
    nothing yet."""
    progress, program = application.progress, application.program
    points = progress.restore_points
    behind = application.newest - points.newest
    calm = progress.complete and not points.older
    if not calm or not are_possible(application) or not 0 <= behind <= BEHIND_EPOCHS_MAX:
        return {}
    share = len(program.partition_names) / len(application.executors)
    count_max = max(1, int(STEP_SHARE * share / max(1, behind)))
    counts: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    step: dict[int, str] = {}
    present = application.executors
    tight = {present.get(executor) for executor in application.budget.tight}
    cold = {node for executor, node in present.items() if executor not in application.warm}
    for number, node in wanted.items():
        if node in tight | cold:
            continue
        keyed = program.owner[number].keyed
        size = state_bytes.get(number, 0) if keyed else 0
        full = counts[node] >= count_max or (counts[node] and sizes[node] + size > STEP_BYTES_MAX)
        if full or (
            keyed and not durable_input_job.is_covered(progress, application.newest, [number])
        ):
            continue
        step[number] = node
        counts[node] += keyed
        sizes[node] += size
    return step
