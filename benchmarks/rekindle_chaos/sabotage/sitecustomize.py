"""Read by Python at its start, where the path leads here: breaks what the environment names.

Not a module of the package: it must stand alone, and bears the name that Python looks for.
"""

import os
import sys
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder
from typing import Any

KIND = os.environ.get("REKINDLE_CHAOS_BREAK", "")
MODULES = {
    "order": "rekindle_spark.partition",
    "dedupe": "rekindle_spark.running",
    "fence": "rekindle_spark.store",
    "restore": "rekindle_spark.states",
    "offset-log": "rekindle_spark.store",
    "trim-early": "rekindle_spark.restoring",
    "manifest": "rekindle_spark.partition",
    "watermark": "rekindle_spark.partition",
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
    store = module.Store
    create = store._create

    def overwrite(self: Any, folder: str, number: int, kind: str, content: Any) -> None:
        self.files.remove([f"{folder}/{number}.json"])
        create(self, folder, number, kind, content)

    store._create = overwrite
    store.check_generation = lambda _: None


def restore(module: Any) -> None:
    load = module.load

    def forgetful(files: Any, name: str, chain: Any, epoch: int) -> Any:
        state = load(files, name, chain, epoch)
        tables = chain.root.function.dump(state.operator)
        shorter = [tables[0], *(table.slice(0, table.num_rows * 9 // 10) for table in tables[1:])]
        return module.State(state.watermark, chain.root.function.load(shorter))

    module.load = forgetful


def offset_log(module: Any) -> None:
    history = module.Store._history

    def shorter(self: Any) -> Any:
        found = history(self)
        for number in sorted(found.offsets)[1:][-2:]:
            self.files.remove([f"offsets/{number}.json"])
            del found.offsets[number]
        return found

    module.Store._history = shorter


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

    def ahead(program: Any, work: Any, state: Any, received: Any) -> Any:
        if not program.owner[work.partition].keyed and work.watermark < 2**62:
            work = replace(work, watermark=work.watermark + 30_000_000)
        return run(program, work, state, received)

    module.run = ahead


BREAK: dict[str, Callable[[Any], None]] = {
    name: globals()[name.replace("-", "_")] for name in MODULES
}


class Breaker(MetaPathFinder):
    """Loads the module as ever, and breaks it before anybody has it."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != MODULES.get(KIND):
            return None
        sys.meta_path.remove(self)
        spec: Any = PathFinder.find_spec(name, path, target)
        execute = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            execute(module)
            BREAK[KIND](module)

        spec.loader.exec_module = exec_module
        return spec


if KIND in MODULES:
    sys.meta_path.insert(0, Breaker())
