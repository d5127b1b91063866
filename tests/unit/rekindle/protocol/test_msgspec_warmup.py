"""Types that several threads read at once."""

import subprocess
import sys

# The first to read a type is interrupted as often as can be; a process of its own, as it may end.
READERS = """
import sys, threading, msgspec
from rekindle.protocol import msgspec_warmup as forms

def kind(number):
    fields = [(f"field_{index}", dict[str, int] | None, None) for index in range(60)]
    inner = msgspec.defstruct(f"Inner{number}", fields, module="rekindle")
    outer = [(f"inner_{index}", inner | None, None) for index in range(40)]
    return msgspec.defstruct(f"Outer{number}", outer, module="rekindle")

kinds = [kind(number) for number in range(300)]
forms.work_out()
sys.setswitchinterval(1e-6)

def read():
    for kind in kinds:
        ready.wait()
        for _ in range(20):
            msgspec.json.decode(b'{"inner_3": {"field_1": {"a": 1}}, "inner_39": {}}', type=kind)

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
