"""Case 02: the same rows through numpy's functions in hosts of two CPUs, one without AVX-512.

Rewritten: the processes import the host, as on executors, for the host holds numpy to instructions
that both CPUs have. Where this CPU has no AVX-512, only the pinned names can be checked.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import verdicts

from rekindle_spark.executor import native_libraries

HOST = """
import json
import rekindle_spark.executor.host
import numpy as np, pyarrow as pa
from rekindle_spark.executor import frames
x = np.random.default_rng(7).uniform(0.001, 50, 20000)
names = "exp", "log", "log1p", "exp2", "cbrt", "arctan", "sin", "cos", "tanh", "sqrt"
made = {name: getattr(np, name)(x) for name in names}
made["power"] = np.power(x, 1.7)
print(json.dumps({n: frames.digest(pa.table({"x": v})).hex() for n, v in made.items()}))
"""
OFF = "AVX512_SKX AVX512_ICL AVX512_SPR X86_V4 AVX512F"
# The same without the host: shows whether this machine can make a difference at all.
PLAIN = HOST.replace("import rekindle_spark.executor.host\n", "")


def digests(program: str, **more: str) -> Any:
    command = [sys.executable, "-W", "ignore", "-c", program]
    ended = subprocess.run(command, env={**os.environ, **more}, capture_output=True, check=True)
    return json.loads(ended.stdout)


def differing(program: str) -> list[str]:
    """The functions whose output differs without AVX-512."""
    here, there = digests(program), digests(program, NPY_DISABLE_CPU_FEATURES=OFF)
    return [name for name in here if here[name] != there[name]]


def main() -> None:
    has_it = "avx512" in Path("/proc/cpuinfo").read_text()
    print("this CPU has AVX-512:", has_it)
    print("differs without it where nothing is pinned:", differing(PLAIN) or "none")
    found = differing(HOST)
    print("differs without it in hosts:", found or "none")
    if not has_it:
        print("PROVED IN PART: that hosts pin numpy; no output of AVX-512 was compared")
    v3 = f"flags : {' '.join(native_libraries.LEVELS['v3'])}"
    pins = set(native_libraries.pinned({}, v3)["NPY_DISABLE_CPU_FEATURES"].split())
    verdicts.end(
        not found and set(OFF.split()) <= pins,
        "an epoch that runs again on another CPU gives the same output",
    )


if __name__ == "__main__":
    main()
