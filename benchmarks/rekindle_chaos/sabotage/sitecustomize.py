"""Read by Python at its start, where the path leads here: breaks what the environment names.

It also hinders where a trap is set: a fault that nothing outside of a process can do. Without a
trap that changes nothing. Traps are files in the folder `traps` beside a trial's store (`traps`).
Not a module of the package: it must stand alone, and bears the name that Python looks for.
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

KIND = os.environ.get("REKINDLE_CHAOS_BREAK", "")
# The drivers of a trial have it, and no other process.
DRIVER_OF = os.environ.get("REKINDLE_CHAOS_DIRECTORY", "")
SLOW_BYTES_PER_SECOND, SLOW_SECONDS = 1e6, 0.05
MODULES = {
    "order": "rekindle_spark.executor.partition",
    "dedupe": "rekindle_spark.jobs.job_runner",
    "fence": "rekindle_spark.store.checkpoint_store",
    "restore": "rekindle_spark.checkpoint.state_files",
    "offset-log": "rekindle_spark.store.checkpoint_store",
    "trim-early": "rekindle_spark.checkpoint.restore_points",
    "manifest": "rekindle_spark.executor.partition",
    "watermark": "rekindle_spark.executor.partition",
    "late-checkpoint": "rekindle_spark.store.checkpoint_store",
    "forgotten-letter": "rekindle_spark.jobs.job_specs",
    "unchecked-frame": "rekindle_spark.executor.frames",
}


def order(module: Any) -> None:
    import random
    from dataclasses import replace

    gather = module._gather

    def any_order(program: Any, work: Any, received: Any) -> Any:
        frames = list(received)
        random.shuffle(frames)
        return gather(program, replace(work, ordered=False), frames)

    module._gather = any_order


def dedupe(module: Any) -> None:
    commit = module._commit

    def again(application: Any, specification: Any, partitions: Any) -> None:
        application.committed.clear()
        commit(application, specification, partitions)

    module._commit = again


def fence(module: Any) -> None:
    store = module.CheckpointStore
    create = store._create

    def overwrite(self: Any, folder: str, number: int, *rest: Any, **how: Any) -> None:
        self.files.remove([f"{folder}/{number}.json"])
        create(self, folder, number, *rest, **how)

    store._create = overwrite
    store.check_generation = lambda _: None


def restore(module: Any) -> None:
    load = module.load

    def forgetful(files: Any, name: str, chain: Any, epoch: int, *moved: Any) -> Any:
        state = load(files, name, chain, epoch, *moved)
        tables = chain.root.function.dump(state.operator)
        shorter = [tables[0], *(table.slice(0, table.num_rows * 9 // 10) for table in tables[1:])]
        return module.PartitionState(state.watermark, chain.root.function.load(shorter))

    module.load = forgetful


def offset_log(module: Any) -> None:
    history = module.CheckpointStore._history

    def shorter(self: Any) -> Any:
        found = history(self)
        for number in sorted(found.offsets)[1:][-2:]:
            self.files.remove([f"offsets/{number}.json"])
            del found.offsets[number]
        return found

    module.CheckpointStore._history = shorter


def trim_early(module: Any) -> None:
    module.RestorePoints.needs = lambda self, _, __, epoch: epoch > self.newest


def manifest(module: Any) -> None:
    gather = module._gather

    def careless(program: Any, work: Any, received: Any) -> Any:
        frames = list(received)
        if len(frames) > 1 and work.epoch % 7 == 3:
            lost = frames[0]
            empty = (lost.edge, lost.producer, lost.target, lost.plan_epoch, lost.epoch)
            frames[0] = module.Frame(*empty, lost.watermark, 0, bytes(8), memoryview(b""))
        return gather(program, work, frames)

    module._gather = careless


def watermark(module: Any) -> None:
    from dataclasses import replace

    run = module.run

    def ahead(program: Any, work: Any, *rest: Any) -> Any:
        if not program.owner[work.partition].keyed and work.watermark < 2**62:
            work = replace(work, watermark=work.watermark + 30_000_000)
        return run(program, work, *rest)

    module.run = ahead


def late_checkpoint(module: Any) -> None:
    module.checkpoint_records.counting = lambda records, _: list(records)
    module.CheckpointStore._is_void = lambda *_: False


def owed_whole(module: Any) -> None:
    module.without_committed = lambda published, *_: published


def forgotten_letter(module: Any) -> None:
    module._choices = lambda *_: {}


def unchecked_frame(module: Any) -> None:
    module.sound = lambda data: (list(module.frames(data)), True)


BREAK: dict[str, Callable[[Any], None]] = {
    name: globals()[name.replace("-", "_")] for name in MODULES
}
# What else has to be broken, for it is mended in two places.
ALSO = {"late-checkpoint": ("rekindle_spark.output.output_commit", owed_whole)}


def _trap(files: Any, name: str) -> Path:
    """A trap beside the store, which may be away itself."""
    return Path(files.directory.parent, "traps", name)


def slow_store(module: Any) -> None:
    """Files of a store come and go at a megabyte a second, each a little later still."""
    files = module.LocalFiles
    create, put, read = files.create, files.put, files.read

    def wait(self: Any, contents: Iterable[bytes]) -> None:
        if _trap(self, "slow-store").exists():
            time.sleep(SLOW_SECONDS + sum(map(len, contents)) / SLOW_BYTES_PER_SECOND)

    def slow_create(self: Any, name: str, data: bytes) -> None:
        wait(self, [data])
        create(self, name, data)

    def slow_put(self: Any, contents: Any, *moved: Any) -> None:
        wait(self, contents.values())
        put(self, contents, *moved)

    def slow_read(self: Any, name: str, *moved: Any) -> bytes:
        found: bytes = read(self, name, *moved)
        wait(self, [found])
        return found

    files.create, files.put, files.read = slow_create, slow_put, slow_read


def late_put(module: Any) -> None:
    """A driver stands still with its next record of a kind on the way: all checks are behind it."""
    create = module.LocalFiles.create

    def late(self: Any, name: str, data: bytes) -> None:
        trap = _trap(self, f"late-put-{name.partition('/')[0]}")
        if DRIVER_OF and trap.exists():
            trap.unlink()
            _trap(self, f"held-{os.getpgrp()}").touch()
            os.killpg(os.getpgrp(), signal.SIGSTOP)
        create(self, name, data)

    module.LocalFiles.create = late


HINDER = {"rekindle_store.local_files": (slow_store, late_put)}


def set_clock() -> None:
    """The driver's clock goes wrong by the seconds that the trap says."""
    right, trap = time.time, Path(DRIVER_OF, "traps", "clock")

    def wrong() -> float:
        try:
            return right() + float(trap.read_text())
        except (OSError, ValueError):  # none is set, or just being
            return right()

    time.time = wrong


class Breaker(MetaPathFinder):
    """Loads some modules as ever, and breaks and hinders them before anybody has them."""

    def __init__(self) -> None:
        self.left: dict[str, list[Callable[[Any], None]]] = {
            name: list(found) for name, found in HINDER.items()
        }
        if KIND in MODULES:
            self.left.setdefault(MODULES[KIND], []).append(BREAK[KIND])
        if KIND in ALSO:
            name, change = ALSO[KIND]
            self.left.setdefault(name, []).append(change)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        changes = self.left.pop(name, None)
        if changes is None:
            return None
        spec: Any = PathFinder.find_spec(name, path, target)
        execute = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            execute(module)
            for change in changes:
                change(module)

        spec.loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, Breaker())
if DRIVER_OF:
    set_clock()
