"""A driver that spark-submit has started and that is told what spark-submit was told.

`test_faults_drivers` has one that runs.
"""

from collections.abc import Callable

from application import Application
from spark_submit import submit

Prepare = Callable[..., Application]


def test_it_says_in_one_line_what_is_wrong_and_spark_ends_with_its_exit_code(
    prepare: Prepare,
) -> None:
    application = prepare()
    submit(application, {}, "--master", "spark://127.0.0.1:1")
    assert application.await_end() != 0
    said = application.driver.log.read_text()
    assert "--master: was said to spark-submit already; leave it out here" in said
    assert not application.store.exists()
