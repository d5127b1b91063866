"""All checks of a pipeline and its settings that call no function of the user.

Called by `rekindle check`, and by `rekindle run` before anything is started.
"""

from pathlib import Path

from rekindle import coordination
from rekindle.errors import InputError
from rekindle.settings import Settings
from rekindle_spark import program, shipping
from rekindle_spark.checks.findings import Finding, of_error, warning
from rekindle_spark.checks.repeatability import repeatability
from rekindle_spark.checks.sizing import sizing
from rekindle_spark.pipeline import Pipeline
from rekindle_spark.program import Program
from rekindle_spark.replay import Replay

__all__ = ["beforehand"]


def beforehand(pipeline: Pipeline, settings: Settings) -> list[Finding]:
    """Check a pipeline as a whole; the first error of its structure hides what else there is."""
    try:
        built = program.build(pipeline)
        coordination.initial(built.topology, settings.policy, settings.runtime.nodes_expected)
    except InputError as error:
        return [of_error(settings.placed(error))]
    found = [*_paths(built), *repeatability(built)]
    try:
        shipped = shipping.pack(built)
    except InputError as error:
        return [of_error(error), *found]
    return [*found, *sizing(built, len(shipped), settings.runtime)]


def _paths(built: Program) -> list[Finding]:
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
