"""The host: the resident process of one executor, which owns state and runs operators.

    python -m rekindle_spark.executor.host SOCKET JVM_PID NOTE LAST_NOTE

Requests come from the executor's tasks (HostProcess.java) over a Unix socket: a JSON header and
the input blocks; answers are a JSON report and the output blocks. Formats: docs/formats.md.
Requests of active queries go before catch-up work, and slow work has a lane of its own
(`host_scheduler`). The host ends when its JVM ends; its state
outlives failed and cancelled jobs. It never raises at a caller: what went wrong is the report.
NOTE is a file that says what its lanes work on, for whoever finds it dead (`watchdog`); what is
suspected of ending it runs apart (`sandbox`). LAST_NOTE is what the host before noted, in
hexadecimal digits.
"""

import os

from rekindle_spark.executor import native_libraries

# Before any library that goes by them is imported.
os.environ.update(native_libraries.pinned(os.environ))

import gc
import json
import pickle
import socket
import struct
import sys
import traceback
from dataclasses import dataclass, field
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import Any

import polars
import pyarrow as pa

from rekindle.model.errors import DamagedError, RekindleError, SourceAwayError
from rekindle_spark.checkpoint import state_files
from rekindle_spark.executor import (
    cpu_meter,
    frames,
    host_answers,
    host_scheduler,
    host_socket,
    memory_gauge,
    partition,
    stack_sampler,
    work_items,
)
from rekindle_spark.executor.cpu_meter import Stopwatch
from rekindle_spark.executor.frames import Frame
from rekindle_spark.executor.host_scheduler import Lane
from rekindle_spark.executor.job_activity import FILE_BYTES, Activity, Entry
from rekindle_spark.executor.memory_gauge import OverBudget
from rekindle_spark.executor.partition import Incomplete, PartitionOutcome, PartitionState
from rekindle_spark.executor.partition_runner import OutdatedRequest, PartitionRunner
from rekindle_spark.executor.sandbox import Died
from rekindle_spark.executor.source_reading import RowsRead
from rekindle_spark.output.sink_files import SinkFiles
from rekindle_spark.pipeline.program import Program
from rekindle_spark.pipeline.unbounded_source import prefetch
from rekindle_spark.user_code import code_locations, print_forwarding, watchdog
from rekindle_store import store_files

# Objects between collections, then collections of each generation between those of the next: rows
# for users' functions are many objects at a time and in no cycles.
COLLECTED_AFTER = (50_000, 10, 10)


class MissingState(Exception):
    """The state version that a request needs is not here."""


@dataclass(slots=True)
class Done:
    """What came of one request up to now: outcomes by partition, frames by target, files.
    `is_damaged`: of the blocks that were read something was not as it had been made."""

    outputs: SinkFiles
    is_damaged: bool = False
    partitions: dict[str, dict[str, Any]] = field(default_factory=dict)
    blocks: dict[int, list[bytes]] = field(default_factory=dict)

    def add(self, number: int, outcome: dict[str, Any], blocks: list[tuple[int, bytes]]) -> None:
        """Enter one partition."""
        self.partitions[str(number)] = outcome
        for target, block in blocks:
            self.blocks.setdefault(target, []).append(block)

    def write(self, outcome: PartitionOutcome) -> None:
        """Write the output of an epoch that is not there yet."""
        for query, sunk in outcome.sinks.items():
            if not sunk.is_there:
                self.outputs.write(query, sunk.file, sunk.table)
        for branch, sunk in outcome.taps.items():
            self.outputs.keep_waiting(branch, sunk.file, sunk.table)

    def add_incomplete(self, number: int, incomplete: Incomplete) -> None:
        """Enter a partition that lacks a frame."""
        outcome: dict[str, Any] = {"status": "incomplete", "text": str(incomplete)}
        if self.is_damaged and incomplete.lacks is not None:
            outcome["text"] += ": what was read is damaged"
            outcome["damaged"] = list(incomplete.lacks)
        self.add(number, outcome, [])


@dataclass(slots=True)
class Host:
    """State and programs of one executor."""

    jvm: int
    lanes: tuple[Lane, ...] = field(default_factory=host_scheduler.lanes)
    versions: dict[int, state_files.Versions] = field(default_factory=dict)
    checkpoints: state_files.Checkpoints = field(default_factory=state_files.Checkpoints)
    programs: dict[str, Program] = field(default_factory=dict)
    activity: Activity = field(default_factory=Activity)
    newest: tuple[int, int, int] = (0, 0, -1)
    meter: cpu_meter.CpuMeter = field(init=False)
    gauge: memory_gauge.MemoryGauge = field(init=False)
    runner: PartitionRunner = field(init=False)

    def __post_init__(self) -> None:
        self.meter = cpu_meter.CpuMeter((self.jvm, os.getpid()))
        self.gauge = memory_gauge.MemoryGauge(memory_gauge.allowed_bytes(self.jvm))
        self.runner = PartitionRunner(self.meter, self.gauge)
        self.runner.sandboxes.start()
        self.checkpoints.activity = self.activity
        self.checkpoints.start()

    def answer(
        self, request: dict[str, Any], data: memoryview | OverBudget
    ) -> tuple[dict[str, Any], list[tuple[int, list[bytes]]]]:
        """Report and output blocks of one request; the files that it names are on disk."""
        report: dict[str, Any] = {
            "status": "ok",
            "executor": request["executor"],
            "host": os.getpid(),
            "machine": native_libraries.machine(),
            "partitions": {},
        }
        done = Done(SinkFiles(store_files.at(request["store"])))
        try:
            program = self._program(request)
            self._fence(request)
            if isinstance(data, OverBudget):
                raise data
            prefetch.bytes_max = self.gauge.prefetch_bytes_max(request)
            received, is_sound = frames.sound(data)
            done.is_damaged = not is_sound
            with self.activity.entry(request["attempt"]) as entry:
                self._run(program, request, frames.by_target(received), done, entry)
        except (RekindleError, OutdatedRequest) as error:
            report.update(status="refused", text=str(error))
            return report, []
        except OSError as error:
            report.update(status="store-away", text=str(error))
            return report, []
        except OverBudget as error:
            sizes = memory_gauge.sizes_of_states(program, self.versions)
            report.update(status="over-budget", text=str(error), memory=error.reading, states=sizes)
            return report, []
        report["partitions"] = done.partitions
        report["cpu"] = self.meter.read()
        report["memory"] = self.gauge.read(request, data, done.blocks)
        report["acks"] = self.checkpoints.taken()
        return report, list(done.blocks.items())

    def _run(
        self,
        program: Program,
        request: dict[str, Any],
        received: dict[tuple[int, int], list[Frame]],
        done: Done,
        entry: Entry,
    ) -> None:
        """All that a request asks for; when this returns, its files are on disk."""
        for item in request["work"]:
            with stack_sampler.label(program.owner[item["partition"]].name):
                self._run_one(program, request, item, received, done, entry)
        for item in request.get("preserve", ()):
            _preserve(program, request, item, received, done, entry)
        entry.begin("writing output")
        done.outputs.put_in_place(entry.sign)

    def _run_one(
        self,
        program: Program,
        request: dict[str, Any],
        item: dict[str, Any],
        received: dict[tuple[int, int], list[Frame]],
        done: Done,
        entry: Entry,
    ) -> None:
        """All epochs of one partition; all of them count, or none."""
        number, epochs, deaths, watch = item["partition"], [], 0, Stopwatch()
        lane = self.lanes[item.get("lane", host_scheduler.FIRST)]
        blocks: list[tuple[int, bytes]] = []
        read: list[dict[str, RowsRead]] = []
        try:
            self.runner.check(number, item)
            state = self._base(program, request, item, entry)
            stored = work_items.stored_frames(program, request, item, entry)
            for epoch in range(item["from"], item["to"] + 1):
                work = work_items.work(program, request, item, epoch)
                entry.begin(f"running epoch {epoch} of {program.partition_names[number]}")
                inputs = [*received.get((number, epoch), ()), *stored.get(epoch, ())]
                with watch:
                    apart, dead = self.runner.run_outside(
                        program, request, item, work, state, inputs, entry.sign
                    )
                with lane.turn(request["urgency"], entry.sign), watch, self.meter.measured(number):
                    entry.sign()
                    outcome = apart or self.runner.run_here(
                        program, request, work, state, inputs, lane.watchdog
                    )
                    if work_items.counts(item, epoch):
                        done.write(outcome)
                deaths, state = deaths + dead, outcome.state
                self._keep(program, request, item, epoch, state)
                blocks += outcome.blocks
                read.append(outcome.read)
                made = [outcome.rows, outcome.digest, host_answers.sinks(outcome), outcome.late]
                epochs.append([epoch, *made, *host_answers.choices(outcome)])
        except MissingState as missing:
            done.add(number, {"status": "missing", "text": str(missing)}, [])
        except Incomplete as incomplete:
            done.add_incomplete(number, incomplete)
        except OutdatedRequest as refused:
            done.add(number, {"status": "refused", "text": str(refused)}, [])
        except Died as died:
            done.add(number, {"status": "died", "epoch": died.epoch, **_described(died.fault)}, [])
        except SourceAwayError as away:
            done.add(number, {"status": "source-away", **_described(away)}, [])
        except RekindleError as error:
            status = "damaged" if isinstance(error, DamagedError) else "error"
            done.add(number, {"status": status, **_described(error)}, [])
        except (OSError, OverBudget):
            raise
        except BaseException as error:  # panics of native libraries are no Exception
            done.add(number, {"status": "error", **host_answers.fault(program, item, error)}, [])
        else:
            size, seconds = sum(len(block) for _, block in blocks), round(watch.seconds, 6)
            gave = {"epochs": epochs, "bytes": size, "deaths": deaths, "seconds": seconds}
            done.add(number, {"status": "ok", **gave, **host_answers.read(read)}, blocks)

    def _base(
        self, program: Program, request: dict[str, Any], item: dict[str, Any], entry: Entry
    ) -> PartitionState:
        """The state before the first epoch of the item, from memory or the checkpoint store."""
        chain, number = program.owner[item["partition"]], item["partition"]
        if not chain.keyed:
            return partition.initial(chain)
        kept = self.versions.setdefault(number, state_files.Versions())
        told = (item["plan_epoch"], request["attempt"])
        if told < kept.newest:
            raise OutdatedRequest(f"plan and job {told} came after {kept.newest}")
        kept.newest = told
        base = item["from"] - 1
        state = kept.by_epoch.get(base)
        if state is not None:
            return state
        if base != item["restore_point"]:
            raise MissingState(f"no version {base} of {program.partition_names[number]}")
        store, name = work_items.checkpoint_file(request, program, number, base, "state")
        entry.begin(f"loading {name}")
        load = partial(state_files.load, store, name, chain, base)
        return kept.loaded(base, load, entry.sign)

    def _keep(
        self,
        program: Program,
        request: dict[str, Any],
        item: dict[str, Any],
        epoch: int,
        state: PartitionState,
    ) -> None:
        number = item["partition"]
        chain = program.owner[number]
        if not chain.keyed:
            return
        kept = self.versions.get(number)
        attempt = request["attempt"]
        if kept is None or (item["plan_epoch"], attempt) < kept.newest:
            raise OutdatedRequest(f"plan {item['plan_epoch']} or its job was replaced while it ran")
        if epoch == item["to"]:
            kept.by_epoch[epoch] = state
            kept.keep_from(min(item["finished"], item["from"] - 1))
        if epoch == request.get("checkpoint"):
            place = work_items.checkpoint_file(request, program, number, epoch, "state")
            base = item["restore_point"]
            writing = state_files.Writing(*place, chain, number, epoch, attempt, base, state)
            self.checkpoints.submit(writing)

    def _program(self, request: dict[str, Any]) -> Program:
        _, _, digest = request["program"]
        if digest not in self.programs:
            self.programs[digest] = pickle.loads(work_items.program_bytes(request))
        return self.programs[digest]

    def _fence(self, request: dict[str, Any]) -> None:
        """Refuse what an older driver asks; forget what is no longer to be held here.

        Requests may overtake each other, so only one of the newest plan and move says what that is.
        """
        told = (request["generation"], request["plan_epoch"], request.get("moved_at", -1))
        if told[0] < self.newest[0]:
            raise OutdatedRequest(f"generation {told[0]} came after {self.newest[0]}")
        if told[0] > self.newest[0]:
            self.versions.clear()
        if told >= self.newest:
            self.newest = told
            gone = self.versions.keys() - set(request["held"])
            self.checkpoints.forget(gone)
            for number in gone:
                self.versions.pop(number, None)
            for number, epoch in request.get("finished", {}).items():
                if int(number) in self.versions:
                    self.versions[int(number)].keep_from(epoch)


def _described(error: RekindleError) -> dict[str, str]:
    return {"where": error.where, "what": error.what, "remedy": error.remedy}


def _preserve(
    program: Program,
    request: dict[str, Any],
    item: dict[str, Any],
    received: dict[tuple[int, int], list[Frame]],
    done: Done,
    entry: Entry,
) -> None:
    """Write the input of a partition that is behind to the store; it need not be this host's."""
    number = item["partition"]
    wanted = {int(producer): tuple(spans) for producer, spans in item["frames"].items()}
    place = work_items.checkpoint_file(request, program, number, item["checkpoint"], "input")
    try:
        entry.begin(f"writing {place[1]}")
        size = state_files.save_frames(
            *place, state_files.chosen_frames(program, number, wanted, received), entry.sign
        )
    except Incomplete as incomplete:
        done.add_incomplete(number, incomplete)
    except (OSError, RekindleError):
        raise
    except BaseException as error:
        told = {"from": item["checkpoint"], "to": item["checkpoint"], **item}
        done.add(number, {"status": "error", **host_answers.fault(program, told, error)}, [])
    else:
        done.add(number, {"status": "ok", "bytes": size}, [])


def _serve(host: Host, connection: socket.socket) -> bool:
    """One request of one task; a caller that has gone is no error. Returns whether this thread may
    serve others: not once it has yielded to them."""
    request: dict[str, Any] = {}
    try:
        with connection, connection.makefile("rb") as reader:
            (size,) = struct.unpack(">i", reader.read(4))
            (header,) = struct.unpack(f"{size}s", reader.read(size))
            request = json.loads(header)
            (total,) = struct.unpack(">q", reader.read(8))
            if host_scheduler.yields(request):
                host_scheduler.yield_to_others()
            connection.sendall(_answered(host, request, reader, total))
    except (OSError, struct.error):
        pass
    return not host_scheduler.yields(request)


def _answered(host: Host, request: dict[str, Any], reader: BufferedReader, size: int) -> bytes:
    """The bytes of an answer: also where something was raised that nobody has foreseen, a panic of
    a native library included, or where the answer does not fit its form."""
    report: dict[str, Any] = {}
    try:
        data = host.gauge.receive(reader, size, request)
        report, blocks = host.answer(request, data)
        return host_answers.encode({**report, "printed": print_forwarding.taken()}, blocks)
    except BaseException:
        host.checkpoints.give_back(report.get("acks", ()))
        text = traceback.format_exc()
        report = {"status": "failed", "executor": request.get("executor"), "text": text}
        return host_answers.encode({**report, "printed": print_forwarding.taken()}, [])


def main() -> None:
    """Serve until the JVM ends."""
    path, jvm, note = Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    last = watchdog.suspected(watchdog.read_all(bytes.fromhex(sys.argv[4])))
    memory_gauge.share_arena()
    code_locations.keep_folder()
    polars.DataFrame({"warm": [1]}).group_by("warm").len()
    pa.table({"warm": [1]}).combine_chunks()
    notes = watchdog.mapped(note, FILE_BYTES)
    host = Host(jvm, host_scheduler.lanes(notes), activity=Activity(notes))
    if last:
        host.runner.beware(noted.partition for noted in last)
    gc.freeze()
    gc.set_threshold(*COLLECTED_AFTER)
    stack_sampler.begin("host", refuses=False)
    print_forwarding.install()
    print_forwarding.close_input()
    host_socket.serve(path, jvm, partial(_serve, host), "*.note")
    os._exit(0)


if __name__ == "__main__":
    main()
