"""Draws a trial from a seed: which steps in which order, how much of all, and what is harmed.

The same seed and the same kinds of faults give the same trial. Every kind of step and of fault
comes up, none in every trial. Steps and settings are those of the seed, whatever the faults are:
where the lookup of a step goes away, such a step is added behind all others.
"""

import random
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import msgspec

from rekindle_chaos import step_schemas, trials
from rekindle_chaos.step_schemas import Shape
from rekindle_chaos.trials import ChaosTrial, Fault, Step

NODES = 4
SECONDS_BEFORE_HARM = 6.0
STEPS = ("filter", "scale", "window", "window", "top", "rises", "join", "union")
SIZES = (60, 300, 900, 3_600)
WITHIN = (5, 30, 120)
# The share of sources and queries that have topics, in trials with Kafka.
TOPICS = 0.7
# By kind: how many nodes, and how long it lasts at most.
FIRST_KINDS = {
    "kill-node": (1, 10.0),
    "kill-nodes": (2, 15.0),
    "kill-most": (NODES - 1, 20.0),
    "silence-node": (1, 15.0),
    "silence-nodes": (2, 15.0),
    "slow-node": (1, 15.0),
    "kill-host": (1, 0.0),
    "kill-driver": (0, 0.0),
    "silence-driver": (0, 8.0),
    "usurp-driver": (0, 6.0),
    "damage-record": (0, 0.0),
    "store-away": (0, 12.0),
    "raise": (0, 0.0),
}
KINDS = {
    **FIRST_KINDS,
    "late-put": (0, 60.0),
    "flip-byte": (2, 0.0),
    "slow-store": (0, 20.0),
    "clock": (0, 20.0),
    "driver-isolated": (0, 20.0),
    "lookup-away": (1, 10.0),
}
# By kind: what it may harm, or how.
WHAT = {
    "late-put": ("offsets", "commits", "checkpoints", "checkpoints"),
    "flip-byte": ("exchange", "exchange", "state"),
    "clock": ("back", "ahead", "back-at-start", "ahead-at-start"),
    "lookup-away": ("node", "driver"),
    "kill-broker": ("1", "2", "3"),
    "silence-broker": ("1", "2", "3"),
}
# Refused where output has become public with a checkpoint: what it was made of must not be lost.
LOSES_CHECKPOINT = (("damage-record", ""), ("flip-byte", "state"))
PROCESS_KINDS = {
    "kill-coordinator": (0, 5.0),
    "silence-coordinator": (0, 10.0),
    "kill-sidecar": (0, 5.0),
    "silence-sidecar": (0, 10.0),
}

LINK_KINDS = {"cut-link": (2, 40.0)}
BROKER_KINDS = {"kill-broker": (0, 10.0), "silence-broker": (0, 10.0)}


def draw(
    seed: int,
    *,
    minutes: float = 1.0,
    processes: bool = False,
    links: bool = False,
    kafka: bool = False,
    only: Collection[str] | None = None,
    ordering: str | None = None,
) -> ChaosTrial:
    """The trial of a seed. `processes`: with coordinator, sidecar and ZooKeeper as well. `links`:
    those between nodes are cut too. `kafka`: some sources and queries have topics, whose brokers
    are harmed too. `only` are the kinds of faults to draw from, all where it is None. `ordering`
    takes the place of the seed's."""
    rng = random.Random(seed)
    seconds = 60.0 * minutes
    rows_per_second = rng.choice((500, 1_500, 3_000))
    rows = int(rows_per_second * seconds)
    policy = _policy(rng)
    if ordering is not None:
        policy |= {"buffering": ordering, "ordering": ordering}
    kinds = known(processes=processes, links=links, kafka=kafka)
    if only is not None:
        kinds = {kind: told for kind, told in kinds.items() if kind in only}
    whole = policy["ordering"] == "always"
    if not whole:
        kinds.pop("damage-record", None)
    steps, runtime = _Sketch(rng).steps_for(rows), _runtime(rng)
    faults = _faults(rng, seconds, kinds, whole=whole)
    if any(fault.kind == "lookup-away" for fault in faults):
        steps, runtime = _with_letters(steps), {**runtime, "dead_letters_percent_max": 100}
    if kafka:
        steps = _with_topics(steps, random.Random(f"topics of {seed}"))
    return ChaosTrial(
        version=trials.TRIAL_VERSION,
        seed=seed,
        seconds=seconds,
        rows_per_second=rows_per_second,
        nodes=NODES,
        processes=processes,
        steps=steps,
        policy=policy,
        runtime=runtime,
        faults=faults,
    )


def known(*, processes: bool, links: bool, kafka: bool) -> dict[str, tuple[int, float]]:
    """The kinds of faults of such a trial."""
    return {
        **KINDS,
        **(PROCESS_KINDS if processes else {}),
        **(LINK_KINDS if links else {}),
        **(BROKER_KINDS if kafka else {}),
    }


def _with_topics(steps: tuple[Step, ...], rng: random.Random) -> tuple[Step, ...]:
    """With topics for most sources and queries, the first of each among them."""
    shapes, seen, found = step_schemas.of_all(steps), set[type[Step]](), list[Step]()
    for step in steps:
        drawn: Step = step
        if isinstance(step, trials.TrialSource | trials.Sink):
            is_topic = rng.random() < TOPICS or type(step) not in seen
            partitions, is_keyed = rng.randint(1, 3), rng.random() < TOPICS
            seen.add(type(step))
            if is_topic:
                drawn = msgspec.structs.replace(step, topic=partitions)
            if is_topic and isinstance(drawn, trials.Sink) and is_keyed:
                texts = shapes[drawn.input].named("text")
                drawn = msgspec.structs.replace(drawn, key=next(iter(texts), ""))
        found.append(drawn)
    return tuple(found)


def _with_letters(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """With a step of dead letters behind the first source, and two queries that read it."""
    source = next(step.name for step in steps if isinstance(step, trials.TrialSource))
    aggregates: dict[str, tuple[str, str | None]] = {
        "rows": ("count", None),
        "sum": ("sum", "found"),
    }
    return (
        *steps,
        trials.ScaleStep("looked-up", source, "value", 2, 1, "found", letters=True),
        trials.WindowStep("found-by-code", "looked-up", ("code",), 300, None, aggregates, 2),
        trials.Sink("query-looked-up", "looked-up", 5),
        trials.Sink("query-found-by-code", "found-by-code", 5),
    )


@dataclass(slots=True)
class _Sketch:
    """A pipeline that grows step by step. `lineages` are the sources behind each stream."""

    rng: random.Random
    steps: list[Step] = field(default_factory=list)
    shapes: dict[str, Shape] = field(default_factory=dict)
    lineages: dict[str, frozenset[str]] = field(default_factory=dict)

    def steps_for(self, rows: int) -> tuple[Step, ...]:
        """A whole pipeline for so many rows of input."""
        sources = self.rng.randint(1, 3)
        for number in range(sources):
            keys, parallelism = self.rng.choice((5, 40, 400)), self.rng.randint(1, 2)
            name = f"source-{number}"
            self._add(trials.TrialSource(name, rows // sources, keys, parallelism), {name})
        for _ in range(self.rng.randint(4, 9)):
            getattr(self, f"_{self.rng.choice(STEPS)}")()
        self._sinks()
        return tuple(self.steps)

    def _add(self, step: Step, lineage: set[str] | frozenset[str]) -> str:
        self.steps.append(step)
        self.shapes[step.name] = step_schemas.of(step, self.shapes)
        self.lineages[step.name] = frozenset(lineage)
        return step.name

    def _name(self, kind: str) -> str:
        return f"{kind}-{len(self.steps)}"

    def _any(self, *, union: bool = True) -> str:
        """A stream, a late one rather than an early one; a union feeds steps with keys alone."""
        unions = {step.name for step in self.steps if isinstance(step, trials.Union)}
        names = [name for name in self.shapes if union or name not in unions]
        return names[max(self.rng.randrange(len(names)), self.rng.randrange(len(names)))]

    def _filter(self) -> None:
        name = self._any(union=False)
        column = self.rng.choice(self.shapes[name].named("whole"))
        above = self.rng.choice((-400, 0, 1, 3, 300))
        self._add(trials.Filter(self._name("filter"), name, column, above), self.lineages[name])

    def _scale(self) -> None:
        name, into = self._any(union=False), f"scaled_{len(self.steps)}"
        column = self.rng.choice(self.shapes[name].named("whole"))
        factor, plus = self.rng.randint(-3, 3), self.rng.randint(-50, 50)
        step = trials.ScaleStep(self._name("scale"), name, column, factor, plus, into)
        self._add(step, self.lineages[name])

    def _window(self) -> None:
        name = self._any()
        shape = self.shapes[name]
        size = self.rng.choice(SIZES)
        whole = shape.named("whole")
        functions = self.rng.sample(("sum", "min", "max", "mean"), self.rng.randint(1, 3))
        tag = len(self.steps)
        aggregates: dict[str, tuple[str, str | None]] = {f"count_{tag}": ("count", None)}
        for function in functions:
            aggregates[f"{function}_{tag}"] = (function, self.rng.choice(whole))
        keys = self._keys(shape)
        step = trials.WindowStep(
            self._name("window"),
            name,
            keys,
            size,
            self.rng.choice((None, None, size // 2, size // 3)),
            aggregates,
            self._parallelism(keys),
        )
        self._add(step, self.lineages[name])

    def _top(self) -> None:
        name = self._any()
        shape = self.shapes[name]
        if "rank" in shape.columns:
            return
        keys = self._keys(shape)
        by = self.rng.choice([column for column in shape.named("whole") if column not in keys])
        count = self.rng.randint(1, 4)
        step = trials.TopStep(self._name("top"), name, by, count, keys, self._parallelism(keys))
        self._add(step, self.lineages[name])

    def _rises(self) -> None:
        name = self._any()
        shape = self.shapes[name]
        if shape.unique_by is None or {"rise", "number"} & shape.columns.keys():
            return
        keys = tuple(dict.fromkeys([*sorted(shape.unique_by), *self._keys(shape)]))
        columns = [column for column in shape.named("whole") if column not in keys]
        if not columns:
            return
        column = self.rng.choice(columns)
        parallelism = self._parallelism(keys)
        step = trials.Rises(self._name("rises"), name, column, keys, parallelism)
        self._add(step, self.lineages[name])

    def _join(self) -> None:
        left, right = self._any(union=False), self._any(union=False)
        shape, other = self.shapes[left], self.shapes[right]
        keys = [k for k in ("key", "code") if k in shape.columns and k in other.columns]
        if not keys or "event_time" in {*shape.columns, *other.columns}:
            return
        keys = keys[: self.rng.randint(1, len(keys))]
        tag = len(self.steps)
        picked = {c: c if c in keys else f"{c}_of_{tag}" for c in other.columns}
        renamed = trials.Pick(self._name("pick"), right, picked)
        right = self._add(renamed, self.lineages[right])
        within, parallelism = self.rng.choice(WITHIN), self.rng.randint(1, 3)
        name = self._name("join")
        step = trials.Join(name, left, right, tuple(keys), within, parallelism)
        self._add(step, self.lineages[left] | self.lineages[right])

    def _union(self) -> None:
        first, second = self._any(union=False), self._any(union=False)
        alike = self.shapes[first].columns == self.shapes[second].columns
        apart = self.lineages[first].isdisjoint(self.lineages[second])
        if alike and apart and self.shapes[first].time == self.shapes[second].time:
            step = trials.Union(self._name("union"), (first, second))
            self._add(step, self.lineages[first] | self.lineages[second])

    def _keys(self, shape: Shape) -> tuple[str, ...]:
        found = [name for name in ("key", "code") if name in shape.columns]
        return tuple(self.rng.sample(found, self.rng.randint(0, len(found))))

    def _parallelism(self, keys: tuple[str, ...]) -> int:
        return self.rng.randint(1, 3) if keys else 1

    def _sinks(self) -> None:
        """Whatever nobody reads is a query, and some that others read as well.

        A union that nobody reads is counted first, for it ends in no sink itself.
        """
        for union in [s for s in self.steps if isinstance(s, trials.Union)]:
            if union.name not in self._read():
                aggregates: dict[str, tuple[str, str | None]] = {"rows": ("count", None)}
                name = self._name("window")
                step = trials.WindowStep(name, union.name, (), 300, None, aggregates, 1)
                self._add(step, self.lineages[union.name])
        unions = {step.name for step in self.steps if isinstance(step, trials.Union)}
        read = self._read()
        for name in [name for name in self.shapes if name not in unions]:
            if name not in read or self.rng.random() < 0.2:
                self.steps.append(trials.Sink(f"query-{name}", name, self.rng.randint(1, 10)))

    def _read(self) -> set[str]:
        found: set[str] = set()
        for step in self.steps:
            found.update(trials.inputs(step))
        return found


def _policy(rng: random.Random) -> dict[str, float | int | str]:
    buffering = rng.choice(("always", "always", "adaptive"))
    ordering = rng.choice(("always", "adaptive")) if buffering == "adaptive" else "always"
    return {
        "strategy": rng.choice(("incremental", "incremental", "incremental", "blocking")),
        "buffering": buffering,
        "ordering": ordering,
        "silent_seconds": rng.choice((4, 8)),
        "stabilisation_seconds": rng.choice((0, 0, 1)),
    }


def _runtime(rng: random.Random) -> dict[str, float | int | str]:
    return {
        "epoch_seconds": rng.choice((0.3, 0.5, 1.0)),
        "checkpoint_seconds": rng.choice((2, 5, 10)),
        "outage_checkpoint_seconds": rng.choice((2, 6, 60)),
        "join_gap_epochs": rng.choice((0, 1, 3)),
        "retained_mib_max": rng.choice((0.1, 1, 256)),
        "node_cpu_percent": rng.choice((20, 60, 100)),
    }


def _faults(
    rng: random.Random, seconds: float, kinds: Mapping[str, tuple[int, float]], *, whole: bool
) -> tuple[Fault, ...]:
    """Faults of some kinds, each at its time; `whole`: checkpoints may be lost."""
    found = []
    at = SECONDS_BEFORE_HARM
    while kinds and at < seconds - SECONDS_BEFORE_HARM:
        kind = rng.choice(list(kinds))
        count, longest = kinds[kind]
        nodes = tuple(sorted(rng.sample(range(NODES), count)))
        lasting = round(rng.uniform(0.2, 1.0) * longest, 1)
        what = ""
        if kind in WHAT:
            what = rng.choice([w for w in WHAT[kind] if whole or (kind, w) not in LOSES_CHECKPOINT])
        found.append(Fault(round(at, 1), kind, nodes, lasting, what))
        at += rng.choice((rng.uniform(0.1, 3.0), rng.uniform(5.0, 25.0), rng.uniform(5.0, 25.0)))
    return tuple(found)
