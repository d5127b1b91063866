"""Settings of recovery and of the run, with their limits.

    Settings
    ├── policy    what the coordinator does about failures
    └── runtime   how the application runs

`load` reads them from a YAML file and refuses what it does not know; every field has a default,
so an empty file will do. Fields, units and ranges are written out in docs/settings.md. Nothing
here acts on a setting.
"""

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, Protocol

import yaml

from rekindle.model.errors import InputError, collecting, first_line, refuse, refuse_any

VERSION = 1
INCREMENTAL, BLOCKING = "incremental", "blocking"
ALWAYS, ADAPTIVE = "always", "adaptive"
EVEN, DOMAINS = "even", "domains"
COMPACTED, SINGLE = "compacted", "single"
JOBS, LINKS = "jobs", "links"
AUTO, APART = "auto", "apart"
DAY_SECONDS = 86_400.0
# A job that does nothing is given up later than an executor that says nothing, and than a function
# that takes too long.
IDLE_SECONDS, FUNCTION_MARGIN_SECONDS = 60.0, 15.0
# Of a number that is written out in a message.
DIGITS_MAX = 18
# Octal numbers, and such to the base of 60.
MISREAD = re.compile(r"[-+]?0[0-9]+|.*:.*")


class _Kind(Protocol):
    """Turns what YAML gave into a field's value, or raises InputError for `where`."""

    def read(self, value: object, where: str) -> Any: ...


@dataclass(frozen=True, slots=True)
class _Number:
    """A number from `low` to `high`; `whole` for counts, `optional` where null is fine."""

    low: float
    high: float
    whole: bool = False
    optional: bool = False

    def read(self, value: object, where: str) -> float | int | None:
        if value is None and self.optional:
            return None
        what = "whole number" if self.whole else "number"
        # Without commas: who copies it into the file gets a number.
        remedy = f"give a {what} from {self.low:.12g} to {self.high:.12g}"
        if isinstance(value, str) and (meant := _meant(value)) is not None:
            refuse(where, f"is {_shown(value)}, which YAML takes for text", f"write {meant:f}")
        if isinstance(value, bool) or not isinstance(value, int | float):
            refuse(where, f"is {_shown(value)}, not a {what}", remedy)
        # Limits first: they also keep out NaN, infinity and what is too large for a float.
        if not self.low <= value <= self.high or (self.whole and value != int(value)):
            refuse(where, f"is {_shown(value)}", remedy)
        return int(value) if self.whole else float(value)


@dataclass(frozen=True, slots=True)
class _Choice:
    """One of a few words."""

    words: tuple[str, ...]

    def read(self, value: object, where: str) -> str:
        if not isinstance(value, str) or value not in self.words:
            refuse(where, f"is {_shown(value)}", f"choose one of: {', '.join(self.words)}")
        return value


@dataclass(frozen=True, slots=True)
class _Numbers:
    """A number for each of some names."""

    number: _Number

    def read(self, value: object, where: str) -> dict[str, Any]:
        record = _mapping(value, where)
        return {name: self.number.read(item, f"{where}.{name}") for name, item in record.items()}


def _setting(default: Any, kind: _Kind) -> Any:
    metadata = {"kind": kind}
    if isinstance(default, dict):
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=default, metadata=metadata)


def _seconds(default: float, low: float = 0.0, high: float = DAY_SECONDS) -> Any:
    return _setting(default, _Number(low, high))


def _count(default: int, low: int = 1, high: int = 10_000) -> Any:
    return _setting(default, _Number(low, high, whole=True))


@dataclass(frozen=True, slots=True)
class Policy:
    """What the coordinator does about failures; times in seconds, CPU in percent of one core."""

    strategy: str = _setting(INCREMENTAL, _Choice((INCREMENTAL, BLOCKING)))
    buffering: str = _setting(ALWAYS, _Choice((ALWAYS, ADAPTIVE)))
    ordering: str = _setting(ALWAYS, _Choice((ALWAYS, ADAPTIVE)))
    correlated_nodes_min: int = _count(2)
    correlated_window_seconds: float = _seconds(120.0)
    stabilisation_seconds: float = _seconds(0.0, high=600.0)
    silent_seconds: float = _seconds(15.0, low=1.0, high=600.0)
    placement: str = _setting(EVEN, _Choice((EVEN, DOMAINS)))
    uneven_seconds: float = _seconds(15.0, low=1.0, high=3_600.0)
    cpu_cap: float = _setting(0.8, _Number(0.05, 1.0))
    solver: str = _setting(
        "auto", _Choice(("auto", "best-density", "dp", "exact", "operator-centric"))
    )
    solver_budget_seconds: float = _seconds(1.0, low=0.01, high=60.0)
    catch_up_seconds: float = _seconds(15.0, low=1.0)
    catch_up_cost_ratio: float = _setting(1.0, _Number(0.0, 10.0))
    default_cpu_percent: float = _setting(2.0, _Number(0.01, 10_000.0))
    priorities: Mapping[str, float] = _setting({}, _Numbers(_Number(1, 10)))
    lag_goals: Mapping[str, float] = _setting({}, _Numbers(_Number(0.01, DAY_SECONDS)))


@dataclass(frozen=True, slots=True)
class RuntimeSettings:
    """How an application runs; a limit on everything that grows."""

    nodes_expected: int = _count(1)
    node_cpu_percent: float = _setting(100.0, _Number(1.0, 100_000.0))
    epoch_seconds: float = _seconds(1.0, low=0.1, high=600.0)
    epoch_stretch_max: float = _setting(3.0, _Number(1.0, 1_000.0))
    recovery_epoch_stretch: float = _setting(1.5, _Number(1.0, 1_000.0))
    epoch_attempts_max: int = _count(3, high=100)
    dead_letter_tries: int = _count(3, high=100)
    dead_letters_max: int = _count(100)
    dead_letters_percent_max: float = _setting(1.0, _Number(0.0, 100.0))
    function_seconds_max: float = _seconds(60.0, low=0.5, high=110.0)
    checkpoint_seconds: float = _seconds(10.0, low=1.0)
    outage_checkpoint_seconds: float = _seconds(60.0, low=1.0)
    store_patience_seconds: float = _seconds(600.0)
    idle_seconds_max: float | None = _setting(None, _Number(5.0, DAY_SECONDS, optional=True))
    rows_per_second: float = _setting(1_000.0, _Number(0.001, 1e9))
    rows_per_epoch_max: int = _count(2_000_000, high=10**9)
    load_target_percent: float | None = _setting(None, _Number(1.0, 100.0, optional=True))
    join_gap_epochs: int = _count(1, low=0, high=1_000)
    catch_up_piece_seconds: float = _seconds(1.5, low=0.1, high=600.0)
    retained_mib_max: float = _setting(2_048.0, _Number(0.01, 1e7))
    classes: str = _setting(SINGLE, _Choice((APART, AUTO, SINGLE)))
    exchange: str = _setting(JOBS, _Choice((JOBS, LINKS)))
    following_mib_max: float = _setting(64.0, _Number(0.001, 1e7))
    link_mib_max: float = _setting(16.0, _Number(0.0, 1e7))
    events_mib_max: float = _setting(256.0, _Number(0.0, 1e7))
    output_files: str = _setting(COMPACTED, _Choice((COMPACTED, SINGLE)))
    host_memory_mib_max: float | None = _setting(None, _Number(16.0, 1e7, optional=True))
    new_executor_seconds: float = _seconds(45.0, high=3_600.0)
    # more than the 5 s that a driver's question to its sidecar may wait for an answer
    alone_seconds: float = _seconds(15.0, low=6.0, high=3_600.0)

    @property
    def recovery_epoch_seconds(self) -> float:
        """Target length of an epoch while something lost is not back: no longer than one may be."""
        return self.epoch_seconds * min(self.recovery_epoch_stretch, self.epoch_stretch_max)

    @property
    def retained_bytes_max(self) -> int:
        """The same in bytes."""
        return int(self.retained_mib_max * 2**20)

    @property
    def following_bytes_max(self) -> int:
        """The same in bytes."""
        return int(self.following_mib_max * 2**20)

    @property
    def link_bytes_max(self) -> int:
        """The same in bytes; 0: frames go through files alone."""
        return int(self.link_mib_max * 2**20)

    @property
    def events_bytes_max(self) -> int:
        """The same in bytes; 0: no limit."""
        return int(self.events_mib_max * 2**20)

    @property
    def host_memory_bytes_max(self) -> int | None:
        """The same in bytes; None: what the container leaves."""
        return None if self.host_memory_mib_max is None else int(self.host_memory_mib_max * 2**20)


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of one application; `place` is the file that they are from, for messages."""

    policy: Policy = field(default_factory=Policy)
    runtime: RuntimeSettings = field(default_factory=RuntimeSettings)
    place: str = field(default="", compare=False)

    def placed(self, error: InputError) -> InputError:
        """Return an error with the file's name before the setting that it names."""
        if not self.place or not error.where.startswith(("policy.", "runtime.")):
            return error
        return InputError(
            where=f"{self.place}: {error.where}", what=error.what, remedy=error.remedy
        )

    @property
    def idle_seconds(self) -> float:
        """For how long nothing may be done for a job: longer than a lost executor is silent, and
        than one call of a function may take."""
        if self.runtime.idle_seconds_max is not None:
            return self.runtime.idle_seconds_max
        function_seconds = self.runtime.function_seconds_max + FUNCTION_MARGIN_SECONDS
        return max(self.policy.silent_seconds + IDLE_SECONDS, function_seconds)


def load(path: str | Path) -> Settings:
    """Settings from a YAML file; raises InputError that names file, field and remedy."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        why = error.strerror or type(error).__name__
        refuse(str(path), f"cannot be read ({why})", "name a readable YAML file")
    return parse(content, str(path))


def parse(content: bytes, where: str) -> Settings:
    """Settings from the bytes of a YAML file; `where` is the file's name in messages."""
    try:
        text = content.decode("utf-8-sig")
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        if node is not None:
            _check_keys(node, where, "", set())
        record = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        refuse(where, f"is not YAML ({_cause(error)})", "mend it as in docs/settings.md")
    return from_record({} if record is None else record, where)


def from_record(record: object, where: str) -> Settings:
    """Settings from what YAML or JSON made of them; raises InputError as `load` does, of all
    settings that are not known or have a wrong value."""
    sections = _mapping(record, where)
    version = sections.get("version", VERSION)
    if isinstance(version, bool) or version != VERSION:
        refuse(f"{where}: version", f"is {_shown(version)}", f"use version {VERSION}")
    found: list[InputError] = []
    for key in sections:
        with collecting(found):
            _check_known(key, ("version", "policy", "runtime"), f"{where}: ")
    policy = Policy(**_section(Policy, sections.get("policy"), where, "policy", found))
    runtime = RuntimeSettings(
        **_section(RuntimeSettings, sections.get("runtime"), where, "runtime", found)
    )
    refuse_any(found)
    _check_modes(policy, where)
    return Settings(policy, runtime, where)


def _section(
    section: type[Policy] | type[RuntimeSettings],
    record: object,
    where: str,
    name: str,
    found: list[InputError],
) -> dict[str, Any]:
    """What is right of a section; what is wrong is added to those that were `found`."""
    values: dict[str, Any] = {}
    if record is None:
        return values
    with collecting(found):
        given = _mapping(record, f"{where}: {name}")
        kinds = {item.name: item.metadata["kind"] for item in fields(section)}
        for key, value in given.items():
            with collecting(found):
                _check_known(key, kinds, f"{where}: {name}.")
                values[key] = kinds[key].read(value, f"{where}: {name}.{key}")
    return values


def _check_modes(policy: Policy, where: str) -> None:
    if policy.buffering == ALWAYS and policy.ordering != ALWAYS:
        what = f"is {policy.ordering}, but policy.buffering is {ALWAYS}"
        refuse(f"{where}: policy.ordering", what, f"use {ALWAYS}: repeats must be identical")


def _check_keys(node: yaml.Node, where: str, place: str, seen: set[int]) -> None:
    """Refuse what YAML would swallow: a key given twice, of which the last one would win."""
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, yaml.ScalarNode):
        _check_number(node, f"{where}: {place}" if place else where)
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _check_keys(item, where, place, seen)
    if not isinstance(node, yaml.MappingNode):
        return
    lines: dict[str, int] = {}
    for key, value in node.value:
        name, line = str(key.value), key.start_mark.line + 1
        path = f"{place}.{name}" if place else name
        if name in lines:
            what = f"is there twice, in lines {lines[name]} and {line}"
            refuse(f"{where}: {path}", what, "keep one of them")
        lines[name] = line
        _check_keys(value, where, path, seen)


def _check_number(node: yaml.ScalarNode, where: str) -> None:
    """Refuse a number that YAML 1.1 reads as another than a person does: 010 as 8, 1:30 as 90."""
    text = node.value.replace("_", "")
    is_number = node.tag in ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
    if is_number and MISREAD.fullmatch(text):
        remedy = "write it in decimal digits without zeros in front, in the unit of the setting"
        refuse(where, f"is {node.value}, which YAML takes for another number", remedy)


def _check_known(key: str, known: Iterable[str], place: str) -> None:
    names = tuple(known)
    if key not in names:
        near = difflib.get_close_matches(key, names, n=1)
        remedy = f"did you mean {near[0]}?" if near else f"known are: {', '.join(names)}"
        if section := _section_of(key):
            remedy = f"write it below `{section}:`"
        refuse(f"{place}{key}", "is not a setting", remedy)


def _section_of(key: str) -> str | None:
    """The section that has a setting of this name."""
    for section, kind in (("policy", Policy), ("runtime", RuntimeSettings)):
        if any(item.name == key for item in fields(kind)):
            return section
    return None


def _mapping(value: object, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        refuse(where, f"is {_shown(value)}", "write names with their values, `name: value`")
    for key in value:
        if not isinstance(key, str) or not key.isprintable() or not key:
            refuse(where, f"has the key {_shown(key)}", "use words as keys, in quotes if need be")
    return value


def _meant(text: str) -> Decimal | None:
    """The number that a person means by a text, as 1e9 or "1,000"; None where it is none."""
    try:
        number = Decimal(text.replace(",", ""))
    except InvalidOperation:
        return None
    return number if number.is_finite() and abs(number.adjusted()) < DIGITS_MAX else None


def _cause(error: Exception) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"line {error.problem_mark.line + 1}: {error.problem}"
    return first_line(error)


def _shown(value: object) -> str:
    """A value in a message, short and on one line."""
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    if isinstance(value, int) and abs(value) >= 10**18:
        return "a number beyond all limits"
    text = "empty" if value is None else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
