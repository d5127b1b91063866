"""Each call of native code that a host can come to raises once, and what is raised is told.

Which calls there are is found by walking the source (`call_sites`). Those that no host can come to
are left out: they stand in functions that are not reached from what a host runs (`host_reach`). All
others have to be reached by what hosts do (`host_actions`), or the test fails. Each raises in one
of the actions that come to it, and the end has to be a step's error, a dead letter, a fault with a
name, or an error for a caller that is known to take it.

All of that is reached on each day, and a seventh raises, another one each day: within a week each
does. `REKINDLE_CALL_SITES=all` has all of them raise.
"""

import ast
import datetime as dt
import importlib
import json
import os
import pkgutil
import sys
import threading
import zlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import call_sites
import host_actions
import pytest

# builders of this suite, on its path
from call_sites import Site
from host_reach import Reach
from host_story import Action, forget_what_is_kept, has_letters, is_told

import rekindle_spark
from rekindle_spark.pipeline.steps import SOURCE_MEMBERS, UNBOUNDED_MEMBERS

DAYS = 7
ALL = os.environ.get("REKINDLE_CALL_SITES") == "all"


class Panic(BaseException):
    """What no `except Exception` catches."""


@cache
def modules() -> list[ModuleType]:
    """All of ours that a host may import: its programs, and what a pickled program may have of
    sources and decoders, with what these import."""
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
        *("windows.WindowAggregate.process", "joins.IntervalJoin.dump", "stateful.KeyedStateful.load"),
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


def _is_of_today(site: Site) -> bool:
    place = f"{site.file.rpartition('/')[2]}:{site.line}:{site.column}"
    return ALL or zlib.crc32(place.encode()) % DAYS == dt.date.today().toordinal() % DAYS


def _raise_at(site: Site, action: Action, usual: Any) -> str:
    """What became of a panic at a call site in an action; empty where nobody was told."""
    with call_sites.raising_at(site, Panic("operator does not support `Int256`")):
        try:
            told = action.run()
        except Panic:
            return "raised" if action.raises else ""
    if is_told(told, "Panic"):
        return "told"
    return "letters" if has_letters(told) else "usual" if _plain(told) == _plain(usual) else ""


def _plain(told: Any) -> str:
    """What was said, without what differs each time."""
    if isinstance(told, dict):
        told = {key: value for key, value in told.items() if key in ("status", "partitions")}
    return json.dumps(told, default=repr, sort_keys=True)


@pytest.mark.timeout(900)
def test_whatever_call_of_native_code_panics_in_a_host_somebody_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", ended.append)
    wanted, apart = sites()["host"], sites()["driver"]
    reached: set[Site] = set()
    unseen: list[str] = []
    counts: dict[str, int] = {}
    for name, group in host_actions.GROUPS.items():
        for action in group(tmp_path / name):
            found = call_sites.reached_by(action.run, wanted | apart)
            fresh = [site for site in found if site not in reached]
            reached.update(fresh)
            usual = action.run() if any(map(_is_of_today, fresh)) else None
            for site in filter(_is_of_today, fresh):
                end = _raise_at(site, action, usual)
                counts[end] = counts.get(end, 0) + 1
                if not end or (end == "usual" and str(site) not in HEALED):
                    unseen.append(f"{action.name} at {site}: {end}")
            capsys.readouterr()
    forget_what_is_kept()
    with capsys.disabled():
        tried = sum(counts.values())
        print(f"\ncall sites: {len(reached & wanted)} of {len(wanted)} reached, {tried} raised")
        print(f"  {counts}; {len(apart)} are the driver's alone")
    assert not ended
    assert not unseen, "\n".join(unseen)
    assert not reached & apart, sorted(map(str, reached & apart))
    assert wanted <= reached, "\n".join(sorted(map(str, wanted - reached)))


# Where what is raised changes nothing: the host does it in another way, or once more.
HEALED: frozenset[str] = frozenset()


def _imports() -> list[tuple[ModuleType, Site]]:
    by_file = {str(module.__file__): module for module in modules()}
    return sorted((by_file[site.file], site) for site in sites()["import"]) if False else [
        (by_file[site.file], site) for site in sorted(sites()["import"])
    ]


def test_a_panic_while_a_host_imports_comes_to_whoever_imports() -> None:
    reached = set()
    for module, site in _imports():
        code = compile(Path(site.file).read_text(), site.file, "exec")

        def run(code: Any = code, module: Any = module) -> None:
            exec(code, {"__name__": module.__name__, "__file__": module.__file__})

        with call_sites.raising_at(site, Panic()), pytest.raises(Panic):
            run()
        reached.add(site)
    assert reached == sites()["import"]


del ast, sys
