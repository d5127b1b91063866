"""Case 18: the events of a run with 18 queries and epochs of a second, over days.

Rewritten: files are set aside at a size, so the case writes several times a small limit.
"""

from pathlib import Path

import verdicts

from rekindle.model.settings import RuntimeSettings
from rekindle_spark.driver.event_log import EventLog, open_events

QUERIES, OVER = 18, 3


def write_epoch(log: EventLog, epoch: int) -> None:
    log.write("cut", epoch=epoch, rows=1000, cut_at=1.7e9 + epoch)
    named = [
        {
            "query": f"query-{number}",
            "query_partition": f"query-{number}/0",
            "from_epoch": epoch,
            "epoch": epoch,
            "plan_epoch": 1,
        }
        for number in range(QUERIES)
    ]
    log.write_each("commit", named)
    stages = [0.1234567, 0.2345678, 0.3456789]
    log.write("ran", epoch=epoch, seconds=0.512345678, stage_seconds=stages, ahead=False)


def bytes_here() -> int:
    return sum(file.stat().st_size for file in Path().glob("events.jsonl*"))


def main() -> None:
    limit = RuntimeSettings(events_mib_max=4.0).events_bytes_max
    with open_events(Path("events.jsonl")) as file:
        log, epoch = EventLog(file, 1, limit), 0
        while epoch < 100:
            epoch += 1
            write_epoch(log, epoch)
        epoch_bytes = bytes_here() / epoch
        largest = 0
        for epoch in range(101, int(OVER * limit / epoch_bytes)):
            write_epoch(log, epoch)
            if epoch % 100 == 0:
                largest = max(largest, bytes_here())
    mib = epoch_bytes * 86400 / 2**20
    names = sorted(file.name for file in Path().glob("events.jsonl*"))
    print(f"{epoch_bytes:.0f} bytes an epoch, {mib:.0f} MiB a day: {epoch} epochs, {names}")
    print(f"largest: {largest / 2**20:.0f} MiB, limit: {limit / 2**20:.0f} MiB")
    is_limited = RuntimeSettings().events_bytes_max > 0
    verdicts.end(is_limited and 0 < largest < 1.05 * limit, "bounded: rolled over by size")


if __name__ == "__main__":
    main()
