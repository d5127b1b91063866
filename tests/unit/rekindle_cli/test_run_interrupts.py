"""The first Ctrl-C asks for an orderly end, and says what came of it."""

from types import SimpleNamespace
from typing import Any

import pytest

from rekindle.model.errors import RunError
from rekindle_cli import run_view


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


@pytest.mark.parametrize("view", [run_view.JsonView(), run_view.RunView(1, "store")])
def test_a_stopped_query_keeps_nobody_waiting_for_a_savepoint(
    view: run_view.RunDisplay, capfd: pytest.CaptureFixture[str]
) -> None:
    view.show({"kind": "query-stopped", "query": "rides", "text": "step seen: raised"})
    asked: list[bool] = []
    run_view.ask_to_end(lambda: asked.append(True), view)
    assert asked == []
    shown = "".join(capfd.readouterr())
    assert (
        "no savepoint can be taken, for rides stopped; press Ctrl-C again to end at once" in shown
    )
