"""All checks of a pipeline and its settings that call no function of the user.

Called by `rekindle check`, and by `rekindle run` before anything is started.
"""

from pathlib import Path

from rekindle import coordination
from rekindle.model.errors import InputError
from rekindle.model.settings import Settings
from rekindle_spark.checks.check_findings import CheckFinding, of_error, warning
from rekindle_spark.checks.repeatability import repeatability
from rekindle_spark.checks.sizing import sizing
from rekindle_spark.pipeline import program, program_pickle
from rekindle_spark.pipeline.program import Program
from rekindle_spark.pipeline.replay import Replay
from rekindle_spark.pipeline.steps import Pipeline


def beforehand(pipeline: Pipeline, settings: Settings) -> list[CheckFinding]:
    """Check a pipeline as a whole; the first error of its structure hides what else there is."""
    try:
        built = program.build(pipeline)
        coordination.initial(built.topology, settings.policy, settings.runtime.nodes_expected)
    except InputError as error:
        return [of_error(settings.placed(error))]
    found = [*_paths(built), *repeatability(built)]
    try:
        shipped = program_pickle.pack(built)
    except InputError as error:
        return [of_error(error), *found]
    return [*found, *sizing(built, len(shipped), settings.runtime)]


def _paths(built: Program) -> list[CheckFinding]:
    """Executors look for a relative path in folders of their own."""
    return [
        warning(
            f"step {chain.name}: source file {chain.root.function.path}",
            "is relative, and executors have current folders of their own",
            "begin it at Path(__file__).parent, or with /",
        )
        for chain in built.chains
        if isinstance(chain.root.function, Replay)
        and not Path(chain.root.function.path).is_absolute()
    ]
