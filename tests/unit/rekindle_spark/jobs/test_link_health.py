"""Links between executors: which executor goes when some cannot read from each other, and when.

And which readers are named because frames wait for them.
"""

from types import SimpleNamespace
from typing import Any

from rekindle_spark.driver.partition_table import Retained
from rekindle_spark.jobs import job_results
from rekindle_spark.jobs.job_specs import Specification
from rekindle_spark.jobs.link_health import (
    BACKLOG_SECONDS_MAX,
    FORGOTTEN_SECONDS,
    REFUSALS_MAX,
    Link,
    Links,
    ReaderBacklog,
    SlowReaders,
)
from rekindle_spark.spark.spark_gateway import LinkBacklog, Read, Task

LIMIT = 15.0
ALL = frozenset("123")


def broken(*links: Link) -> Links:
    found = Links()
    found.fail(dict.fromkeys(links, LIMIT), LIMIT)
    return found


def fail(links: Links, now: float, seconds: float = 0.2) -> None:
    links.fail({("1", "2"): seconds}, now)


def test_a_link_that_fails_for_as_long_as_a_silent_executor_has_costs_one_of_its_ends() -> None:
    links = Links()
    for now in (0.2, LIMIT - 0.1):
        fail(links, now)
        assert links.worst(ALL, {}, LIMIT) is None
    fail(links, LIMIT)
    assert links.worst(ALL, {"1": 3.0, "2": 5.0}, LIMIT) == ("1", frozenset({"2"}))
    assert links.worst(ALL, {"1": 5.0, "2": 3.0}, LIMIT) == ("2", frozenset({"1"}))


def test_a_read_that_fails_at_once_drops_nobody_and_one_that_hung_for_so_long_is_enough() -> None:
    links = Links()
    fail(links, 100.0, seconds=LIMIT - 0.1)
    assert links.worst(ALL, {}, LIMIT) is None
    links = Links()
    fail(links, 100.0, seconds=LIMIT)
    assert links.worst(ALL, {}, LIMIT) == ("2", frozenset({"1"}))


def test_the_one_that_most_others_cannot_read_goes_whatever_priority_it_has() -> None:
    links = broken(("1", "2"), ("3", "2"))
    assert links.worst(ALL, {"2": 100.0}, LIMIT) == ("2", frozenset({"1", "3"}))


def test_one_that_can_read_from_nobody_goes_and_not_those_that_it_cannot_read() -> None:
    assert broken(("2", "1"), ("2", "3")).worst(ALL, {"2": 100.0}, LIMIT) == (
        "2",
        frozenset({"1", "3"}),
    )


def test_a_link_that_fails_both_ways_counts_once() -> None:
    links = broken(("1", "2"), ("2", "1"), ("1", "3"))
    assert links.worst(ALL, {"1": 9.0}, LIMIT) == ("1", frozenset({"2", "3"}))


def test_at_equal_priority_the_newer_executor_goes_by_number() -> None:
    assert broken(("9", "10")).worst({"9", "10"}, {}, LIMIT) == ("10", frozenset({"9"}))


def test_a_link_that_flaps_begins_again_with_each_read_that_goes_well() -> None:
    links = Links()
    for now in range(0, 100, 10):
        fail(links, float(now))
        links.succeed([("1", "2")])
    fail(links, 100.0)
    fail(links, 110.0)
    assert links.worst(ALL, {}, LIMIT) is None


def test_what_failed_long_ago_is_forgotten() -> None:
    links = Links()
    fail(links, 0.0)
    fail(links, FORGOTTEN_SECONDS + 1)
    assert links.worst(ALL, {}, LIMIT) is None


def test_silence_and_losses_are_no_matter_of_links() -> None:
    links = broken(("1", "2"))
    assert links.worst({"1", "3"}, {}, LIMIT) is None
    links.forget(["2"])
    assert links.failing == {}


def test_a_failed_read_names_all_whose_blocks_could_not_be_had_and_how_long_that_took() -> None:
    told: dict[str, Any] = {"status": "unreadable", "text": "", "seconds": 15.5}
    reports = [
        {**told, "executor": "1", "peers": ["2", "4"]},
        {**told, "executor": "3", "peers": []},
    ]
    specification = Specification((), (), {4: (1, 1)})
    progress: Any = SimpleNamespace(retained=Retained())
    found = job_results.judge(progress, specification, reports, "")
    assert found.cut_links == {("1", "2"): 15.5, ("1", "4"): 15.5}


def test_of_a_job_that_went_well_only_links_that_fail_are_told() -> None:
    reading = Task("n1", "1", b"", (Read(7, (0, 2), (0,)),))
    specification = Specification(((reading,),), ((("1", {}),),), {})
    progress: Any = SimpleNamespace(retained=Retained(executors={7: ("2", "3")}))
    found = job_results.judge(progress, specification, [], "", failing=[("1", "3"), ("1", "4")])
    assert found.finished
    assert found.sound_links == {("1", "3")}


def test_a_job_has_links_to_who_has_its_own_and_the_retained_outputs_that_it_reads() -> None:
    reading = Task("n1", "1", b"", (Read(-1, (0, 2), (0,)), Read(7, (1, 2), (0,))))
    own: tuple[tuple[str, dict[int, tuple[int, int]]], ...] = (("1", {}), ("2", {}))
    specification = Specification(((), (reading,)), (own, (("1", {}),)), {})
    assert specification.links({7: ("5", "3")}) == {("1", "2"), ("1", "3")}


def backlogs(*found: tuple[str, str, int, int]) -> list[LinkBacklog]:
    return [LinkBacklog(*one) for one in found]


def test_a_reader_is_slow_while_frames_have_waited_for_it_all_the_time() -> None:
    readers = SlowReaders()
    waiting = backlogs(("1", "2", 500, 0), ("3", "2", 250, 0), ("1", "3", 0, 2))
    assert readers.look(waiting, 100.0) == ({}, set())
    begun, over = readers.look(waiting, 100.0 + BACKLOG_SECONDS_MAX)
    assert begun == {"2": ReaderBacklog(("1", "3"), 750, 0)}
    assert "frames have waited" in begun["2"].text
    assert not over
    assert readers.look(waiting, 101.0 + BACKLOG_SECONDS_MAX) == ({}, set()), "it is said once"
    assert readers.look([], 102.0 + BACKLOG_SECONDS_MAX) == ({}, {"2"})


def test_frames_that_wait_now_and_then_make_no_reader_slow() -> None:
    readers = SlowReaders()
    for now in range(0, 60, 2):
        assert readers.look(backlogs(("1", "2", 500, 0)), float(now)) == ({}, set())
        assert readers.look([], now + 1.0) == ({}, set())


def test_a_reader_that_grants_no_credit_is_named_although_nothing_waits() -> None:
    readers = SlowReaders()
    assert readers.look(backlogs(("1", "2", 0, REFUSALS_MAX)), 0.0) == ({}, set())
    begun, _ = readers.look(backlogs(("1", "2", 0, REFUSALS_MAX + 1)), 1.0)
    assert begun["2"].refusals == REFUSALS_MAX + 1
    assert "raise link_mib_max" in begun["2"].text
    assert readers.look(backlogs(("1", "2", 0, 0)), 2.0) == ({}, {"2"})
