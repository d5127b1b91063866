"""Protected queries on releases of Spark other than the project's own.

A release that pip could not get is left out loudly, under `CI=true` too: nothing but
`make spark-releases` installs it. One that is installed has to work.
"""

import sys
from pathlib import Path

import pytest

from rekindle_local import cached_files
from testbed import spark_releases

INTEGRATION = Path(__file__).parents[2] / "integration"
sys.path.insert(0, str(INTEGRATION))

import spark_programs  # noqa: E402 - it is found there

SHOP = Path(__file__).with_name("protected_shop.py")
# What is left out is in the shop as well, or has nothing to do with the release.
CHECKS = (
    "check_refusals",
    "check_heartbeats",
    "check_task_retries",
    "check_what_ends_by_itself",
    "check_the_thread_of_a_start_function",
    "check_pools_and_limits",
    "check_without_a_sidecar",
)


@pytest.fixture(params=spark_releases.RELEASES)
def release(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def run(release: str, program: Path, *arguments: str, folder: Path) -> str:
    """What a program prints that runs on a release of Spark."""
    site = spark_releases.find(release)
    if site is None:
        pytest.skip(
            f"PROTECTED QUERIES ARE NOT TESTED ON SPARK {release}: it is not installed; "
            "run `make spark-releases`"
        )
    with cached_files.in_use(site.parent):
        return spark_programs.run(program, *arguments, folder=folder, ahead=[site])


def test_a_query_waits_for_a_worker_and_loses_no_row(release: str, tmp_path: Path) -> None:
    said = run(release, SHOP, folder=tmp_path)
    assert said.splitlines() == [
        "costs were measured",
        "clicks waits",
        "clicks is back",
        f"each row is there once on Spark {release}",
    ]


def test_queries_are_refused_stopped_started_and_left_alone(release: str, tmp_path: Path) -> None:
    program = INTEGRATION / "protecting.py"
    said = run(release, program, str(tmp_path), *CHECKS, folder=tmp_path)
    assert f"all is as it should be on Spark {release}" in said
