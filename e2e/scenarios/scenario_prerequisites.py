"""What scenarios need, looked at before anything is built or made; all that is amiss said at once.

    everywhere            a folder for reports, Java, programs and images, or what builds them
    on this machine       root, cgroups, packages, nobody else's cluster; folders that nodes see
    on a given cluster    its context, the folder that its nodes share, commands that lose nodes

`python -m scenarios` calls `check`.
"""

import os
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from images import image_builder
from rekindle.model.errors import InputError
from rekindle_local import spark_distribution
from scenarios import kube_contexts, quickstart_scenario, report_folders, scenario_clusters
from scenarios.kube_contexts import CONTEXT
from scenarios.node_commands import MEANS, Means
from testbed import environment_faults, foreign_crds, test_programs
from testbed.cluster import cluster_lock
from testbed.cluster import cluster_prerequisites as machine
from testbed.environment_faults import raised
from testbed.test_programs import CONTROL_PLANE, HELM, KUBECTL, NODE


def check(names: Sequence[str], folder: Path) -> None:
    """Raises `InputError` that tells all that scenarios of these names would fail for.

    `folder` is that of reports.
    """
    context = os.environ.get(CONTEXT)
    found = raised(partial(report_folders.check, folder))
    found += _on_given(context) if context else _on_own(folder)
    if quickstart_scenario.NAME in names:
        found += raised(quickstart_scenario.check_plugin)
    found += raised(spark_distribution.find_distribution)
    # Where programs and images are, or would be made.
    if unknown := raised(partial(test_programs.cache_folder, os.environ)):
        found += unknown
    else:
        found += _to_build(is_given=bool(context))
    environment_faults.check(found)


def _on_own(folder: Path) -> Iterator[InputError]:
    yield from raised(_check_no_cluster_is_meant)
    yield from machine.lacking()
    yield from raised(cluster_lock.check_free)
    yield from raised(partial(machine.check_folder, folder, "--report"))


def _on_given(context: str) -> Iterator[InputError]:
    test_programs.say(f"asking the API server of the context {context}")
    yield from raised(lambda: kube_contexts.find(context, os.environ).check())
    yield from raised(partial(scenario_clusters.shared_folder, os.environ))
    yield from raised(partial(Means, os.environ))


def _to_build(*, is_given: bool) -> Iterator[InputError]:
    nodes = () if is_given else (*CONTROL_PLANE, *NODE)
    if not is_given:
        cache = test_programs.cache_folder(os.environ)
        yield from raised(partial(machine.check_folder, cache, "REKINDLE_TESTBED"))
    yield from test_programs.lacking((*nodes, HELM, KUBECTL))
    yield from foreign_crds.lacking("spark-operator")
    yield from image_builder.lacking()


def _check_no_cluster_is_meant() -> None:
    """Raises `InputError` for settings of a given cluster where none is given."""
    given = [name for name in (scenario_clusters.SHARED, MEANS) if os.environ.get(name)]
    if given:
        raise InputError(
            where=", ".join(given),
            what=f"is for a cluster that {CONTEXT} names, and that is not set",
            remedy=f"set {CONTEXT} too, or leave all of them out for a cluster of our own",
        )
