"""What is looked after every few seconds, and how often its trouble is said."""

import threading

from rekindle.model.errors import RunError
from rekindle_operator.cluster.api_client import ObjectConflict
from rekindle_operator.cluster.work_queue import UpkeepThread

WAIT_SECONDS_MAX = 30.0


class Work:
    """Turns that raise what they are given, one after the other, then nothing."""

    def __init__(self, *troubles: BaseException | None) -> None:
        self.troubles = list(troubles)
        self.told: list[str] = []
        self.done = threading.Event()
        self.upkeep = UpkeepThread("work", self.turn, lambda: 0.0, self.told.append)

    def turn(self) -> None:
        if not self.troubles:
            self.done.set()
            return
        trouble = self.troubles.pop(0)
        if trouble is not None:
            raise trouble


def away(what: str = "is away") -> RunError:
    return RunError(where="API", what=what, remedy="wait")


def test_a_trouble_is_said_once_and_again_when_it_has_been_over_or_is_another_one() -> None:
    work = Work(away(), away(), away("refuses"), None, away("refuses"), away("refuses"))
    while work.troubles:
        work.upkeep.take_turn()
    assert [text.split(";")[0] for text in work.told] == [
        "API: is away",
        "API: refuses",
        "API: refuses",
    ]


def test_a_conflict_is_no_trouble() -> None:
    work = Work(ObjectConflict(where="Secret", what="has changed", remedy="read it"))
    work.upkeep.take_turn()
    assert work.told == []


def test_it_goes_on_after_a_trouble_until_it_is_closed() -> None:
    work = Work(away())
    work.upkeep.start()
    assert work.done.wait(WAIT_SECONDS_MAX)
    work.upkeep.close()
    assert len(work.told) == 1


class Panic(BaseException):
    """As libraries of Rust raise it: no Exception."""


def test_it_goes_on_after_a_panic_of_a_library() -> None:
    work = Work(Panic("a certificate that nobody has thought of"))
    work.upkeep.start()
    assert work.done.wait(WAIT_SECONDS_MAX)
    work.upkeep.close()
    assert work.told == ["Panic: a certificate that nobody has thought of"]


def test_it_goes_on_after_a_bug_as_well() -> None:
    """A certificate that nobody looks after ends weeks later."""
    work = Work(KeyError("metadata"), KeyError("metadata"))
    work.upkeep.start()
    assert work.done.wait(WAIT_SECONDS_MAX)
    work.upkeep.close()
    assert work.told == ["KeyError: 'metadata'"]
