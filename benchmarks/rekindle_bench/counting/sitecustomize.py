"""Read by Python at its start, where the path leads here: counts the CPU time of checksums.

In the folder that the environment names each process keeps a file with seconds, calls and bytes.
Not a module of the package: it must stand alone, and bears the name that Python looks for.
"""

import os
import sys
import threading
import time
import zlib
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder
from pathlib import Path
from types import SimpleNamespace
from typing import Any

TO = os.environ.get("REKINDLE_BENCH_CHECKS", "")
MODULE = "rekindle_spark.executor.frames"
WRITE_SECONDS = 0.2


class Counter:
    """`crc32` as ever; what it takes is added up, and written now and then."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = threading.Lock()
        self.seconds, self.calls, self.bytes = 0.0, 0, 0
        self.written_at = 0.0

    def crc32(self, data: Any, value: int = 0) -> int:
        begin = time.thread_time()
        found = zlib.crc32(data, value)
        took = time.thread_time() - begin
        with self.lock:
            self.seconds += took
            self.calls += 1
            self.bytes += len(data)
            now = time.monotonic()
            if now - self.written_at > WRITE_SECONDS:
                self.written_at = now
                beside = self.path.with_suffix(".new")
                beside.write_text(f"{self.seconds} {self.calls} {self.bytes}")
                beside.replace(self.path)
        return found


class Finder(MetaPathFinder):
    """Loads the module as ever, with a counted `zlib`."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != MODULE:
            return None
        sys.meta_path.remove(self)
        spec: Any = PathFinder.find_spec(name, path, target)
        execute = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            execute(module)
            counter = Counter(Path(TO, f"{os.getpid()}.count"))
            module.zlib = SimpleNamespace(crc32=counter.crc32)

        spec.loader.exec_module = exec_module
        return spec


if TO:
    sys.meta_path.insert(0, Finder())
