"""Each call of native code that a host can come to raises once, and the error is reported.

Which calls there are is found by walking the source (`call_sites`). Those that no host can come to
are left out: they stand in functions that are not reached from the programs of a host
(`host_reach`). All others have to be reached by actions (`host_actions`). Each raises in one of the
actions that come to it, and the end has to be a step's error, a dead letter, a fault with a name,
or an error for a caller that is known to take it.

All of that takes minutes, so each day has a part of it: some groups of actions, and a third of the
calls that these come to. Within fifteen days each call raises. `REKINDLE_CALL_SITES=all` has all of
them reached and raise at once, and fails for one that nothing comes to.
"""

import datetime as dt
import importlib
import json
import os
import pkgutil
import sys
import threading
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import call_sites
import host_actions
import pytest

# builders of this suite, on its path
from call_sites import Site
from host_reach import Reach
from host_story import Action, forget_what_is_kept, has_letters, is_told

import rekindle_spark
from rekindle_spark.checkpoint import state_files
from rekindle_spark.connectors import file_folders
from rekindle_spark.executor import host
from rekindle_spark.operators import KeyedStateful
from rekindle_spark.pipeline.steps import SOURCE_MEMBERS, UNBOUNDED_MEMBERS
from rekindle_spark.user_code import dead_letter_sieve

# Groups of actions have turns, and with each turn another part of their calls raises.
TURNS, PARTS = 5, 3
ALL = os.environ.get("REKINDLE_CALL_SITES") == "all"


class Panic(BaseException):
    """What no `except Exception` catches."""


@cache
def modules() -> list[ModuleType]:
    """All of ours that a host may import: its programs, and the sources and decoders that a
    pickled program may have, with the modules that these import."""
    found: dict[str, ModuleType] = {}
    for name in ("rekindle_spark.executor.host", "rekindle_spark.executor.sandbox", *_sources()):
        found |= {module.__name__: module for module in call_sites.imported_by(name)}
    return list(found.values())


def _sources() -> Iterator[str]:
    """The modules with classes that can be a pipeline's source or a source's decoder."""
    for info in pkgutil.walk_packages(rekindle_spark.__path__, "rekindle_spark."):
        module = importlib.import_module(info.name)
        for value in vars(module).values():
            if isinstance(value, type) and value.__module__ == info.name:
                members = {*dir(value), *getattr(value, "__annotations__", ())}
                kinds = (SOURCE_MEMBERS, UNBOUNDED_MEMBERS, ("schema", "check", "decode"))
                if any({*kind} <= members for kind in kinds):
                    yield info.name


@cache
def reach() -> Reach:
    return Reach(modules())


@cache
def sites() -> dict[str, frozenset[Site]]:
    """All call sites: of hosts, of the driver alone, and of imports, outside of functions."""
    found: dict[str, set[Site]] = {"host": set(), "driver": set(), "import": set()}
    spans: dict[str, list[Any]] = {}
    for span in reach().spans:
        spans.setdefault(span.file, []).append(span)
    for site in frozenset().union(*map(call_sites.sites_in, modules())):
        keys = [s.key for s in spans.get(site.file, ()) if s.first <= site.line <= s.last]
        kind = "import" if not keys else "host" if keys[0] in reach().found else "driver"
        found[kind].add(site)
    return {kind: frozenset(some) for kind, some in found.items()}


def test_what_a_host_can_come_to_is_found_by_the_source() -> None:
    found = {f"{module.rpartition('.')[2]}.{name}" for module, name in reach().found}
    for expected in (
        *("host.main", "sandbox.main", "partition._packed", "state_files.Checkpoints._write_all"),
        *("replay.Replay.read", "kafka.Kafka.read", "file_source.FileSource.read"),
        *(
            "windows.WindowAggregate.process",
            "joins.IntervalJoin.dump",
            "stateful.KeyedStateful.load",
        ),
        *("decoding.Json.decode", "avro_values.Avro._ask", "object_files.ObjectFiles.put"),
        *("hdfs_files.HdfsFiles.read", "file_folders._LocalFile.readinto"),
    ):
        assert expected in found, expected
    for driver in (
        *("program.build", "steps.Pipeline.source", "windows.WindowAggregate.__init__"),
        *("replay.Replay.check", "kafka.Kafka.latest_offsets", "file_source._Asking.offsets"),
        *("arrow_columns.check_keys", "column_types.check", "sink_files.check_schema"),
        *("file_rows.contents", "kafka_sink.KafkaSink.check"),
    ):
        assert driver not in found, driver


def _day() -> int:
    return dt.date.today().toordinal()


def _groups_of_today() -> list[str]:
    """The groups of actions that have their turn."""
    names = list(host_actions.GROUPS)
    return [name for place, name in enumerate(names) if ALL or place % TURNS == _day() % TURNS]


def _is_of_today(site: Site) -> bool:
    place = f"{site.file.rpartition('/')[2]}:{site.line}:{site.column}"
    return ALL or zlib.crc32(place.encode()) % PARTS == _day() // TURNS % PARTS


def _raise_at(site: Site, action: Action, usual: Any) -> str:
    """The end of a panic at a call site in an action; empty where it is not reported."""
    panic = Panic("Panic: operator does not support `Int256`")
    unraisable: list[BaseException | None] = []
    sys.unraisablehook = lambda given: unraisable.append(given.exc_value)
    with call_sites.raising_at(site, panic):
        try:
            told = action.run()
        except Panic:  # a thread that serves a connection takes it: test_panics.py
            return "raised" if action.raises or _is_in(site, host._answered) else ""
    if is_told(told, "Panic"):
        return "told"
    # of a file that nobody holds any more Python itself takes errors, printed or not
    if panic in unraisable or _is_in(site, file_folders._LocalFile.close):
        return "in a finalizer"
    if isinstance(told, list) and all("bytes" in one for one in told):
        return "written whole" if _taken_by(panic) == state_files._marks.__code__ else ""
    is_same = _plain(told) == _plain(usual)
    if is_same and '"status": "ok"' not in _plain(told):
        return "another fault"
    if is_same and _taken_by(panic) in TAKE_APART:
        return "rows apart"
    return "letters" if has_letters(told) and not is_same else ""


# Rows that raise together are taken in halves, or one by one, and in these nothing has raised.
TAKE_APART = (dead_letter_sieve.attempt.__code__, KeyedStateful._hand_over.__code__)


def _taken_by(panic: Panic) -> CodeType | None:
    """The function that has caught a panic."""
    return None if panic.__traceback__ is None else panic.__traceback__.tb_frame.f_code


def _is_in(site: Site, function: Any) -> bool:
    code = function.__code__
    last = max(line or 0 for *_, line in code.co_lines())
    return site.file == code.co_filename and code.co_firstlineno <= site.line <= last


def _plain(told: Any) -> str:
    """The report on rows: status, epochs and digests, without bytes and times."""
    if isinstance(told, dict) and "partitions" in told:
        found = told["partitions"].values()
        told = [
            [told["status"]],
            [
                [one["status"], [epoch[:3] for epoch in one.get("epochs", ())], one.get("what")]
                for one in found
            ],
        ]
        return json.dumps(told).replace('"ok"', '"status": "ok"')
    return json.dumps(told, default=repr, sort_keys=True)


@dataclass
class Run:
    """The calls that actions came to, and the ends of those that raised."""

    wanted: frozenset[Site]
    apart: frozenset[Site]
    reached: set[Site] = field(default_factory=set)
    ends: Counter[str] = field(default_factory=Counter)
    unseen: list[str] = field(default_factory=list)

    def add(self, action: Action) -> None:
        """Have an action come to its calls, and some of those raise that no other has come to."""
        found = call_sites.reached_by(action.run, self.wanted | self.apart)
        fresh = [site for site in found if site not in self.reached]
        self.reached.update(fresh)
        chosen = [site for site in fresh if _is_of_today(site)]
        usual = action.run() if chosen else None
        for site in chosen:
            end = _raise_at(site, action, usual)
            self.ends[end] += 1
            if not end:
                self.unseen.append(f"{action.name} at {site}: nobody was told")


@pytest.mark.timeout(1_800)
def test_whatever_call_of_native_code_panics_in_a_host_somebody_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", ended.append)
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)  # taken back at the end
    run = Run(sites()["host"], sites()["driver"])
    for name in _groups_of_today():
        for action in host_actions.GROUPS[name](tmp_path / name):
            run.add(action)
            capsys.readouterr()
    forget_what_is_kept()
    with capsys.disabled():
        reached, total = len(run.reached & run.wanted), len(run.wanted)
        print(f"\ncall sites of hosts: {reached} of {total} reached, {run.ends.total()} raised:")
        print(f"  {dict(run.ends)}; {len(run.apart)} more are the driver's alone")
    assert not ended
    assert not run.unseen, "\n".join(run.unseen)
    assert not run.reached & run.apart, sorted(map(str, run.reached & run.apart))
    if ALL:
        assert not run.wanted - run.reached, sorted(map(str, run.wanted - run.reached))


def test_a_panic_while_a_host_imports_comes_to_whoever_imports() -> None:
    names = {str(module.__file__): module.__name__ for module in modules()}
    # a program's last lines call its `main`, and run in no import
    imported = [site for site in sites()["import"] if not site.text.endswith(".main")]
    assert len(imported) > 50
    for site in imported:
        code = compile(Path(site.file).read_text(), site.file, "exec")
        own = {"__name__": names[site.file], "__file__": site.file}
        with call_sites.raising_at(site, Panic()), pytest.raises(Panic):
            exec(code, own)
