"""`rekindle run --local` as a user calls it: a loss, a console, prints, an orderly end."""

import os
import re
import shlex
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from rekindle_cli.jsonl_tail import EventFile
from rekindle_local import process_sets

LIMIT_SECONDS = 300.0
ROWS = 20_000
PIPELINE = """
import logging
import os
from pathlib import Path

from rekindle_spark.pipeline.steps import Pipeline, count
from rekindle_spark.pipeline.replay import Replay


def seen(rides):
    if rides.num_rows:
        print("rows:", rides.num_rows)
        print("read:", os.read(0, 1))
        logging.getLogger("rides").info("zones: %d", len(rides["zone"].unique()))
    return rides


def pipeline():
    built = Pipeline("rides")
    rides = built.source("rides", Replay(str(Path(__file__).with_name("rides.parquet")), "at"))
    rides = rides.map("seen", seen, schema=rides.schema)
    rides.window("minutes", keys=["zone"], size_seconds=60, aggregates={"rides": count()}).sink(
        "rides-per-minute", priority=5
    )
    return built
"""


def prepare(folder: Path) -> Path:
    times = pa.array([1_700_000_000_000_000 + 100_000 * row for row in range(ROWS)])
    zones = pa.array([f"zone-{row % 7}" for row in range(ROWS)])
    table = pa.table({"at": times.cast(pa.timestamp("us")), "zone": zones})
    pq.write_table(table, folder / "rides.parquet")
    (folder / "rides.py").write_text(PIPELINE)
    return folder / "rides.py"


def status_command(said: Path) -> list[str]:
    """What the run has printed for whoever wants to see more, without the program's name."""
    found = re.search(r"^see more with: rekindle (.+)$", said.read_text(), re.MULTILINE)
    assert found is not None
    return shlex.split(found[1])


def test_a_local_run_survives_its_loss_ends_at_a_savepoint_and_leaves_nothing(
    tmp_path: Path,
) -> None:
    file, temporary = prepare(tmp_path), tmp_path / "temporary"
    temporary.mkdir()
    command = [sys.executable, "-m", "rekindle_cli", "run", str(file), "--local", "2", "--json"]
    with (tmp_path / "out").open("wb") as out, (tmp_path / "said").open("wb") as said:
        process = subprocess.Popen(
            [*command, "--kill-after", "1s", "--kill", "1", "--console"],
            cwd=tmp_path,
            env={**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": os.pathsep.join(sys.path)},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=said,
            start_new_session=True,
        )
    events, kinds, started = EventFile(tmp_path / "out"), [], {}

    def is_back() -> bool:
        for record in events.fresh():
            kinds.append(record["kind"])
            if record["kind"] == "coordinator-started":
                started.update(record)
        after = kinds[kinds.index("confirmed") :] if "confirmed" in kinds else []
        return "recovered" in after and "joined" in after

    try:
        assert process_sets.await_condition(
            lambda: is_back() or process.poll() is not None, limit_seconds=LIMIT_SECONDS
        )
        assert process.poll() is None, (tmp_path / "said").read_text()
        address = f"http://127.0.0.1:{started['console_port']}/applications/local/rides"
        with urllib.request.urlopen(address, timeout=60) as answer:
            assert "rides-per-minute" in answer.read().decode()
        status = subprocess.run(
            [*command[:3], *status_command(tmp_path / "said")], capture_output=True, timeout=60
        )
        assert b"rides-per-minute" in status.stdout, status.stderr
        process.send_signal(signal.SIGINT)
        assert process.wait(LIMIT_SECONDS) == 0, (tmp_path / "said").read_text()
    finally:
        process.kill()
        process.wait()
    is_back()
    assert kinds[-1] == "savepoint"
    assert "function-suspected" not in kinds  # it waited for input that nobody gives
    shown = (tmp_path / "said").read_text()
    assert "killing 1 of 2 nodes" in shown
    assert re.search(r"printed by step seen, rides/0, epoch \d+: rows: \d+\n", shown)
    assert re.search(r"printed by step seen, rides/0, epoch \d+: read: b''\n", shown)
    assert re.search(r"printed by step seen, rides/0, epoch \d+: INFO rides: zones: \d\n", shown)
    assert [*(tmp_path / "rides-store" / "outputs" / "rides-per-minute").glob("*.parquet")]
    assert not [*temporary.glob("rekindle-*")]
    assert process_sets.session_processes(process.pid) == ()
