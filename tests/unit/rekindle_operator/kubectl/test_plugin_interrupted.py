"""`kubectl rekindle` is interrupted while the API server says nothing: 130, and no word."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest
import yaml

ROOT = Path(__file__).parents[4]
# The moment from which on a command is quiet; before it, the interpreter starts.
BEGIN = """
import os, sys
from rekindle import interrupts
from rekindle_operator.kubectl import __main__ as plugin
interrupts.end_at_once()
os.write({descriptor}, b".")
sys.exit(plugin.main())
"""


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Iterator[Path]:
    """One whose API server takes connections, and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        server = f"https://127.0.0.1:{silent.getsockname()[1]}"
        parts = {
            "clusters": [{"name": "a", "cluster": {"server": server}}],
            "users": [{"name": "a", "user": {"token": "a"}}],
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
            "current-context": "a",
        }
        (tmp_path / "kubeconfig").write_text(yaml.safe_dump(parts))
        yield tmp_path / "kubeconfig"


@pytest.mark.parametrize("milliseconds", [0, 100, 300, 700, 1500])
def test_an_interruption_at_any_moment_is_quiet(kubeconfig: Path, milliseconds: int) -> None:
    reading, writing = os.pipe()
    words = ["status", "--kubeconfig", str(kubeconfig)]
    running = subprocess.Popen(
        [sys.executable, "-c", BEGIN.format(descriptor=writing), *words],
        env={"PYTHONPATH": os.pathsep.join(str(ROOT / root) for root in ("recovery", "operator"))},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=[writing],
    )
    os.close(writing)
    assert os.read(reading, 1) == b"."
    os.close(reading)
    Event().wait(milliseconds / 1000)  # the moment is what is tested
    running.send_signal(signal.SIGINT)
    assert (*running.communicate(timeout=60), running.returncode) == (b"", b"", 130)
