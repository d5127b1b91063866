"""The webhook's server beside a loop that decides, in a process of its own; run as a script.

Prints its port and authority as JSON. For each line on its input it prints how often the loop has
turned so far, and the most memory that the process has ever had (bytes).
"""

import json
import re
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

from injection_world import knowledge
from prometheus_client import CollectorRegistry

from rekindle_operator.webhook import certificate_issuer
from rekindle_operator.webhook.injector import Informed
from rekindle_operator.webhook.webhook_server import WebhookServer, make_counter

TURN_SECONDS = 0.05


class Deciding(threading.Thread):
    """What has to go on, whoever asks the webhook."""

    turns = 0

    def run(self) -> None:
        while True:
            time.sleep(TURN_SECONDS)
            self.turns += 1


def memory_bytes() -> int:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) << 10


def main() -> None:
    issued = certificate_issuer.issue(("127.0.0.1",), datetime.now(UTC))
    server = WebhookServer(
        Informed(knowledge()),
        lambda: issued.pair,
        make_counter(CollectorRegistry()),
        lambda *_, **__: None,
        host="127.0.0.1",
        port=0,
    )
    server.start()
    deciding = Deciding(daemon=True)
    deciding.start()
    print(json.dumps({"port": server.port, "authority": issued.authority.decode()}), flush=True)
    for _ in sys.stdin:
        print(json.dumps({"turns": deciding.turns, "memory": memory_bytes()}), flush=True)
    server.close()


if __name__ == "__main__":
    main()
