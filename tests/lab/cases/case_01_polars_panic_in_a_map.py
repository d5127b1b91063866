"""Case 01: a map panics inside polars (decimal256) with dead letters on, and the host must answer.

Rewritten: the request comes from `host_world`, because a request now carries the program's digest.
"""

import functools
import json
import os
import socket
import struct
import threading
from decimal import Decimal
from pathlib import Path

import host_world
import polars as pl
import pyarrow as pa
import verdicts

from rekindle_spark.executor import host
from rekindle_spark.executor.host_socket import ConnectionThreads
from rekindle_spark.pipeline import program
from rekindle_spark.pipeline.steps import Pipeline


def add_wei(table: pa.Table) -> pa.Table:
    wei = pa.array([Decimal(1)] * table.num_rows, pa.decimal256(76, 0))
    pl.from_arrow(table.append_column("wei", wei))  # polars has no such decimal and panics
    return table


def pipeline() -> Pipeline:
    built = Pipeline("amounts")
    rows = built.source("rows", host_world.Numbers())
    rows.map("add-wei", add_wei, schema=host_world.SCHEMA, dead_letters=True).sink("out")
    return built


def answered(desk: host_world.Desk) -> bytes:
    """The report that a task gets over the host's socket."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind("host.sock")
    listener.listen(8)
    threading.excepthook = lambda ended: print(f"a thread died of {ended.exc_type.__name__}")
    ConnectionThreads(listener, functools.partial(host._serve, desk.host)).start()
    header = json.dumps(desk.request(0, 1, 1)).encode()
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(60)
    client.connect("host.sock")
    client.sendall(struct.pack(">i", len(header)) + header + struct.pack(">q", 0))
    return client.recv(1 << 16)


def main() -> None:
    desk = host_world.Desk(Path.cwd(), program=program.build(pipeline()))
    answer, error = verdicts.attempt(lambda: desk.ask(0, 1, 1))
    print("Host.answer:", answer[0]["partitions"] if answer else verdicts.worded(error))
    got = answered(desk)
    print("bytes answered over the socket:", len(got))
    verdicts.end(
        error is None and len(got) > 0 and b'"failed"' not in got[:200] and b"add-wei" in got,
        "a fault of the step add-wei (or a dead letter), never a dead request",
    )


if __name__ == "__main__":
    os.environ["RUST_BACKTRACE"] = "0"
    main()
