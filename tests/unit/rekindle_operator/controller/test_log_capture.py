"""What libraries say becomes lines of the log, or nothing."""

import io
import json
import logging
import threading
import warnings
from typing import Any

import pytest

from rekindle_coordinator.coordinator_log import Log
from rekindle_operator.controller import log_capture


def lines(file: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.getvalue().splitlines()]


def test_libraries_write_json_into_the_log_and_nothing_to_standard_error(
    capfd: pytest.CaptureFixture[str],
) -> None:
    file = io.StringIO()
    with log_capture.heard(Log(file)):
        logging.getLogger("kopf.activities").warning("Not enough permissions for %s", "pods")
        warnings.warn("old", DeprecationWarning, stacklevel=1)
        try:
            raise ValueError("bad")
        except ValueError:
            logging.getLogger("asyncio").exception("Task was never retrieved")
    logging.getLogger("rekindle_zookeeper.kazoo").warning("Connection dropped")
    logging.getLogger("kopf").warning("after the end")
    first, *_, last = lines(file)
    assert (first["kind"], first["library"], first["level"]) == (
        "library",
        "kopf.activities",
        "warning",
    )
    assert first["text"] == "Not enough permissions for pods"
    assert "ValueError: bad" in last["trace"]
    assert capfd.readouterr().err == ""


def test_what_is_no_news_is_left_out() -> None:
    file = io.StringIO()
    with log_capture.heard(Log(file)):
        kopf = logging.getLogger("kopf")
        kopf.warning("OS signals are ignored: running not in the main thread.")
        kopf.warning("Unresolved resources cannot be served (try creating their CRDs): {x}")
        for attempt in range(1, 10):
            kopf.error(f"Request attempt #{attempt}/9 failed; will retry: GET /apis")
        logging.getLogger("rekindle_zookeeper.kazoo").warning("Connection dropped: socket error")
        logging.getLogger("urllib3.connectionpool").warning("Connection pool is full")
    assert [line["text"] for line in lines(file)] == [
        "Request attempt #1/9 failed; will retry: GET /apis"
    ]


def test_the_same_is_said_again_after_a_while() -> None:
    file, now = io.StringIO(), [0.0]
    handler = log_capture.Lines(Log(file), clock=lambda: now[0])
    record = logging.LogRecord("kopf", logging.ERROR, "", 0, "bad", None, None)
    for now[0] in (0.0, log_capture.QUIET_SECONDS / 2, log_capture.QUIET_SECONDS + 1):
        handler.handle(record)
    assert len(lines(file)) == 2


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_ends_by_a_bug_is_told_of(capfd: pytest.CaptureFixture[str]) -> None:
    file = io.StringIO()

    def fail() -> None:
        raise ValueError("a bug")

    with log_capture.heard(Log(file)):
        thread = threading.Thread(target=fail, name="watch-pods")
        thread.start()
        thread.join()
    (line,) = lines(file)
    assert (line["kind"], line["thread"]) == ("thread-ended", "watch-pods")
    assert "ValueError: a bug" in line["trace"]
    assert capfd.readouterr().err == ""
