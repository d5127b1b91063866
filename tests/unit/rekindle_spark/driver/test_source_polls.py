"""Polls of sources: an answer counts at once, and what a commit raises ends nothing."""

import itertools
import signal
import threading
from collections.abc import Callable, Mapping

import pytest
from log_source import Log

from rekindle import interrupts
from rekindle.model.errors import (
    DataLossError,
    InputError,
    RekindleError,
    RunError,
    SourceAwayError,
)
from rekindle_spark.driver import source_polls
from rekindle_spark.driver.source_polls import SILENT_SECONDS_MAX, SourcePolls
from rekindle_spark.pipeline.unbounded_source import PartitionOffsets, SourceWork
from rekindle_store.store_files import Files


class Committing(Log):
    """A log that raises what `errors` has next when it is committed to."""

    def __init__(self, errors: list[BaseException | None]) -> None:
        super().__init__({"p": 10})
        self.errors = errors
        self.before: Callable[[], None] = lambda: None

    def commit(self, offsets: Mapping[str, int]) -> None:
        self.before()
        error = self.errors.pop(0)
        if error is not None:
            raise error
        super().commit(offsets)


def polls(source: Log) -> SourcePolls:
    """Polls that end as soon as they wait."""
    clock = itertools.count(100)
    return SourcePolls({"one": source}, 0.0, frozenset(), lambda: float(next(clock)))


def poll(asking: SourcePolls) -> None:
    """Have the source asked once, in this thread."""
    asking.ended = OneRound()
    asking._ask("one")


class OneRound(threading.Event):
    """Is set by who waits for it."""

    def wait(self, timeout: float | None = None) -> bool:
        del timeout
        self.set()
        return True


REFUSED = RunError(where="Kafka", what="refuses it", remedy="see the credentials")


def test_the_answer_is_there_before_the_commit_and_counts_though_the_commit_fails() -> None:
    away = SourceAwayError(where="Kafka", what="cannot be reached", remedy="wait")
    source = Committing([away])
    asking, seen = polls(source), list[bool]()
    source.before = lambda: seen.append("one" in asking.answers)
    asking.commit({"one": {"p": 5}}, {})
    poll(asking)
    assert seen == [True]
    assert not asking.newest()["one"].away
    assert asking.newest()["one"].offsets["p"].latest == 10


def test_why_a_commit_fails_is_news_once_until_it_changes() -> None:
    source = Committing([REFUSED, REFUSED, ValueError("odd"), None, REFUSED])
    asking, news = polls(source), list[dict[str, str]]()
    for _ in range(5):
        asking.commit({"one": {"p": 5}}, {})
        poll(asking)
        news.append(asking.take_commit_news())
    refused = {"one": "Kafka: refuses it; see the credentials"}
    assert news == [refused, {}, {"one": "raised ValueError: odd"}, {}, refused]
    assert source.committed == {"p": 5}
    assert asking.failure is None


class Counting(Log):
    """Has a large file to count before it answers."""

    at: SourceWork | None = None

    def work(self) -> SourceWork | None:
        return self.at


def test_a_source_that_gets_on_with_what_takes_long_is_not_away() -> None:
    now = [1_000.0]
    source = Counting({"p": 10})
    asking = SourcePolls({"one": source}, 0.0, frozenset(), lambda: now[0])
    poll(asking)
    for done in range(5):
        now[0] += SILENT_SECONDS_MAX - 5
        source.at = SourceWork(done + 1, f"counts the rows of a, {done}")
        answer = asking.newest()["one"]
        assert (answer.away, answer.offsets["p"].latest) == ("", 10)
    assert asking.take_work_news() == {"one": "counts the rows of a, 0"}
    assert asking.take_work_news() == {}
    now[0] += SILENT_SECONDS_MAX + 1
    assert asking.newest()["one"].away == "has not answered for 31 s", "it does not get on"
    source.at = None
    poll(asking)
    assert not asking.newest()["one"].away


def test_nothing_is_committed_to_a_source_that_is_away() -> None:
    source = Committing([None])
    source.is_away = True
    asking = polls(source)
    asking.commit({"one": {"p": 5}}, {})
    poll(asking)
    assert asking.newest()["one"].away
    source.is_away = False
    poll(asking)
    assert source.committed == {"p": 5}


class Failing(Log):
    """A log that raises an error when it is asked."""

    def __init__(self, error: BaseException) -> None:
        super().__init__({"p": 10})
        self.error = error

    def latest_offsets(self) -> Mapping[str, PartitionOffsets]:
        raise self.error


NO_TOPIC = {
    "where": "Kafka at b:9092",
    "what": "has no topic 'a'",
    "remedy": "make the topic first",
}


class Keeping(Committing):
    """One that keeps records in the store."""

    def keep_in(self, store: Files, step: str, *, dead_letters: bool = False) -> None: ...

    def check_records(self, store: Files, step: str) -> None: ...


def test_a_source_with_records_here_is_committed_to_also_while_it_is_away() -> None:
    source = Keeping([None])
    source.is_away = True
    asking = polls(source)
    asking.commit({}, {"one": {"p": 5}})
    poll(asking)
    assert source.committed == {"p": 5}


def test_a_source_with_records_here_forgets_only_what_no_kept_checkpoint_needs() -> None:
    newest, settled = {"one": {"p": 9}}, {"one": {"p": 5}}
    for source, end in ((Keeping([None]), 5), (Committing([None]), 9)):
        asking = polls(source)
        asking.commit(newest, settled)
        poll(asking)
        assert source.committed == {"p": end}


def test_what_is_found_wrong_in_the_middle_of_a_run_is_an_error_of_the_run() -> None:
    asking = polls(Failing(InputError(**NO_TOPIC)))
    poll(asking)
    with pytest.raises(RunError) as failed:
        asking.newest()
    error: RekindleError = failed.value
    assert {name: getattr(error, name) for name in NO_TOPIC} == NO_TOPIC


def test_an_error_of_the_run_keeps_its_kind() -> None:
    asking = polls(Failing(DataLossError(where="log", what="is gone", remedy="wait")))
    poll(asking)
    with pytest.raises(DataLossError):
        asking.newest()


class Refusing(Log):
    """A log that refuses whoever has not read it before."""

    is_known = False

    def resume(self) -> None:
        self.is_known = True

    def latest_offsets(self) -> Mapping[str, PartitionOffsets]:
        if not self.is_known:
            raise REFUSED
        raise SourceAwayError(where="Kafka", what="cannot be reached", remedy="see the options")


def test_a_source_that_the_store_has_offsets_of_knows_it_before_it_is_asked() -> None:
    sources = {"new": Refusing({"p": 10}), "known": Refusing({"p": 10}), "plain": Log({"p": 10})}
    with pytest.raises(RunError, match="refuses it"):
        source_polls.check(sources, {"known", "plain"})
    del sources["new"]
    source_polls.check(sources, {"known", "plain"})


def test_what_a_source_raises_as_it_is_resumed_is_told_of_its_step_and_absence_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def resume(_: Refusing, token: str) -> None:
        """A method of somebody's own, which is called so."""

    def away(_: Refusing) -> None:
        raise SourceAwayError(where="log", what="cannot be reached", remedy="wait")

    monkeypatch.setattr(Refusing, "resume", resume)
    with pytest.raises(RekindleError, match=r"one.*missing 1 required positional argument"):
        source_polls.check({"one": Refusing({"p": 10})}, {"one"})
    monkeypatch.setattr(Refusing, "resume", away)
    source_polls.check({"one": Refusing({"p": 10})}, {"one"})


def test_a_source_that_is_away_says_what_to_do() -> None:
    source = Refusing({"p": 10})
    source.resume()
    asking = polls(source)
    poll(asking)
    assert asking.newest()["one"].away == "cannot be reached; see the options"


def test_what_is_wrong_before_anything_is_started_is_an_error_of_the_input() -> None:
    with pytest.raises(InputError, match="has no topic"):
        source_polls.check({"one": Failing(InputError(**NO_TOPIC))})


def test_ctrl_c_in_a_command_that_waits_for_a_source_is_not_the_sources_fault() -> None:
    class Waiting(Log):
        def latest_offsets(self) -> Mapping[str, PartitionOffsets]:
            signal.raise_signal(signal.SIGINT)
            return super().latest_offsets()

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), interrupts.raised():
            source_polls.check({"one": Waiting({"p": 10})})
    finally:
        signal.signal(signal.SIGINT, before)
