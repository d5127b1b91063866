"""Types that several threads read at once."""

import subprocess
import sys

# The first to read a type is interrupted as often as can be; a process of its own, as it may end.
READERS = """
import sys, threading, msgspec
from rekindle_operator.shell import forms

fields = {f"field_{number}": (dict[str, int] | None, None) for number in range(100)}
kinds = [msgspec.defstruct(f"Kind{n}", [(k, *v) for k, v in fields.items()]) for n in range(100)]
forms.work_out()
sys.setswitchinterval(1e-6)

def read():
    for kind in kinds:
        ready.wait()
        msgspec.json.decode(b'{"field_1": {"a": 1}, "field_99": {"b": 2}}', type=kind)

ready = threading.Barrier(4)
threads = [threading.Thread(target=read) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def test_threads_may_be_the_first_to_read_what_was_worked_out() -> None:
    done = subprocess.run([sys.executable, "-c", READERS], check=False)
    assert done.returncode == 0
