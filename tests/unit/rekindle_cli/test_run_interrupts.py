"""The first Ctrl-C asks for an orderly end, and says what came of it."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from rekindle.model.errors import RunError
from rekindle_cli import run_view
from rekindle_cli.run_view import RunDisplay


def test_what_was_asked_for_is_said() -> None:
    said: list[str] = []
    view: Any = SimpleNamespace(say=said.append, stopped={})
    asked: list[bool] = []
    run_view.ask_to_end(lambda: asked.append(True), view)
    assert asked == [True]
    assert said == ["ending at a savepoint; press Ctrl-C again to end at once"]


@pytest.mark.parametrize(
    "error",
    [OSError(13, "Permission denied"), RunError(where="s3://a/b", what="is away", remedy="wait")],
)
def test_a_store_that_is_away_ends_no_thread_unseen(error: Exception) -> None:
    said: list[str] = []
    view: Any = SimpleNamespace(say=said.append, stopped={})

    def fail() -> None:
        raise error

    run_view.ask_to_end(fail, view)
    (line,) = said
    assert str(error) in line
    assert "press Ctrl-C again to end at once" in line


STOPPED = {"kind": "query-stopped", "query": "rides", "text": "step seen: raised", "generation": 1}
NO_SAVEPOINT = (
    "no savepoint can be taken, because query rides has stopped; press Ctrl-C again to end at once"
)
VIEWS = pytest.mark.parametrize(
    "make", [run_view.JsonView, lambda: run_view.RunView(1, "store")], ids=["json", "lines"]
)


@VIEWS
def test_a_stopped_query_keeps_nobody_waiting_for_a_savepoint(
    make: Callable[[], RunDisplay], capfd: pytest.CaptureFixture[str]
) -> None:
    view = make()
    view.show(STOPPED)
    asked: list[bool] = []
    run_view.ask_to_end(lambda: asked.append(True), view)
    assert asked == []
    assert "".join(capfd.readouterr()).count(NO_SAVEPOINT) == 1


@VIEWS
def test_a_query_that_stops_before_the_savepoint_is_taken_says_that_none_will_be(
    make: Callable[[], RunDisplay], capfd: pytest.CaptureFixture[str]
) -> None:
    view = make()
    run_view.ask_to_end(lambda: None, view)
    assert "no savepoint" not in "".join(capfd.readouterr())
    view.show(STOPPED)
    view.show(STOPPED)
    assert "".join(capfd.readouterr()).count(NO_SAVEPOINT) == 1


@VIEWS
def test_a_driver_that_starts_again_starts_queries_that_had_stopped(
    make: Callable[[], RunDisplay], capfd: pytest.CaptureFixture[str]
) -> None:
    view = make()
    view.show(STOPPED)
    view.show({"kind": "nodes-requested", "count": 1})
    assert list(view.stopped) == ["rides"]
    view.show({"kind": "joined", "node": "node-1", "executor": "1", "generation": 2})
    assert not view.stopped
    asked: list[bool] = []
    run_view.ask_to_end(lambda: asked.append(True), view)
    assert asked == [True]
    assert "ending at a savepoint" in "".join(capfd.readouterr())


@VIEWS
def test_a_query_that_stops_while_the_end_is_asked_for_has_the_last_word(
    make: Callable[[], RunDisplay], capfd: pytest.CaptureFixture[str]
) -> None:
    view = make()
    run_view.ask_to_end(lambda: view.show(STOPPED), view)
    shown = "".join(capfd.readouterr())
    assert NO_SAVEPOINT in shown
    assert "ending at a savepoint" not in shown


def test_several_queries_that_have_stopped_are_named_in_order() -> None:
    assert run_view.no_savepoint({"b": "", "a": ""}).startswith(
        "no savepoint can be taken, because queries a, b have stopped;"
    )
