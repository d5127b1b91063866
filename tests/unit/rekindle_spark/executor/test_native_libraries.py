"""Native libraries in hosts: one thread, and the same instructions on every machine."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from rekindle_spark.executor import native_libraries
from rekindle_spark.jobs import job_runner

V3 = "avx avx2 bmi1 bmi2 f16c fma movbe cx16 popcnt sse4_1 sse4_2 ssse3"
V4 = f"{V3} avx512f avx512bw avx512cd avx512dq avx512vl"
# What is as if the machine had no AVX-512, for numpy.
WITHOUT = "AVX512_SKX AVX512_ICL AVX512_SPR X86_V4 AVX512F"
MADE = """
import json
import rekindle_spark.executor.host
import numpy as np, pyarrow as pa
from rekindle_spark.executor import frames
x = np.random.default_rng(7).uniform(0.001, 50, 20_000)
made = {name: getattr(np, name)(x) for name in ("exp", "log", "log1p", "exp2", "cbrt", "tanh")}
made["power"] = np.power(x, 1.7)
tables = {name: pa.table({"x": value}) for name, value in made.items()}
print(json.dumps({name: frames.digest(table).hex() for name, table in tables.items()}))
"""


def cpu(flags: str, vendor: str = "GenuineIntel") -> str:
    return f"processor\t: 0\nvendor_id\t: {vendor}\nflags\t\t: {flags}\n\nprocessor\t: 1\n"


def digests(**more: str) -> Any:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NPY")}
    environment |= {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **more}
    command = [sys.executable, "-W", "ignore", "-c", MADE]
    ended = subprocess.run(command, env=environment, capture_output=True, check=True)
    return json.loads(ended.stdout)


def test_functions_of_numpy_give_the_same_in_hosts_with_and_without_avx_512() -> None:
    assert digests() == digests(NPY_DISABLE_CPU_FEATURES=WITHOUT)


def test_threads_are_one_whatever_spark_has_set() -> None:
    found = native_libraries.pinned({"OMP_NUM_THREADS": "4"}, cpu(V3))
    assert {found["OMP_NUM_THREADS"], found["OPENBLAS_NUM_THREADS"], found["MKL_NUM_THREADS"]} == {
        "1"
    }
    assert (
        native_libraries.pinned({"POLARS_MAX_THREADS": "2"}, cpu(V3))["POLARS_MAX_THREADS"] == "2"
    )


def test_instructions_are_pinned_where_the_cpu_has_them_and_a_wish_is_kept() -> None:
    assert native_libraries.pinned({}, cpu(V4)) == native_libraries.pinned({}, cpu(V3))
    assert native_libraries.pinned({}, cpu(V3))["OPENBLAS_CORETYPE"] == "Haswell"
    assert "OPENBLAS_CORETYPE" not in native_libraries.pinned({}, cpu("ssse3 sse4_1"))
    assert "OPENBLAS_CORETYPE" not in native_libraries.pinned({}, "")
    assert native_libraries.pinned({"MKL_CBWR": "COMPATIBLE"}, cpu(V4))["MKL_CBWR"] == "COMPATIBLE"


@pytest.mark.parametrize(
    ("architecture", "described", "kind"),
    [
        ("x86_64", cpu(V4), "x86_64-v4 GenuineIntel"),
        ("x86_64", cpu(V3, "AuthenticAMD"), "x86_64-v3 AuthenticAMD"),
        ("x86_64", cpu("cx16 popcnt sse4_1 sse4_2 ssse3"), "x86_64-v2 GenuineIntel"),
        ("x86_64", cpu("sse2"), "x86_64-v1 GenuineIntel"),
        ("aarch64", "Features\t: fp asimd sve2 sve\n", "aarch64 sve sve2"),
        ("aarch64", "", "aarch64"),
    ],
)
def test_a_machine_is_described_by_what_matters_to_a_repeat(
    architecture: str, described: str, kind: str
) -> None:
    assert native_libraries.described(architecture, described) == kind


def test_a_difference_is_put_down_to_the_machines_only_where_they_differ() -> None:
    alike = job_runner.differing("decay", 7, ["x86_64-v4 GenuineIntel"] * 3)
    assert "CPU" not in str(alike)
    assert str(alike).startswith("step decay, epoch 7: gave another output when it ran again")
    mixed = job_runner.differing("decay", 7, ["x86_64-v4 GenuineIntel", "x86_64-v3 AuthenticAMD"])
    assert "several kinds (x86_64-v3 AuthenticAMD, x86_64-v4 GenuineIntel)" in str(mixed)
    assert "deterministic=False" in mixed.remedy
