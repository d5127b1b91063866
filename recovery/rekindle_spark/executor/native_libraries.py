"""Native libraries in a host, held to one thread and to instructions that other machines have too.

A repeat on another machine must give the same to the last bit. Libraries of numbers choose their
code by what the CPU can do, and split sums by their number of threads, which Spark sets from
`spark.task.cpus`; with AVX-512 numpy's `exp` rounds otherwise than without. What `pinned` says must
be set before any of them is imported. What somebody has set for instructions is kept. `host` sets
it, and reports `machine()`; what it has to do with repeats: docs/pipelines.md.
"""

import platform
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

CPU = Path("/proc/cpuinfo")
THREADS = (
    *("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "RAYON_NUM_THREADS"),
    *("POLARS_MAX_THREADS", "NUMEXPR_NUM_THREADS", "NUMBA_NUM_THREADS"),
)
# Spark has set it for every executor, so what is there is nobody's wish. Arrow goes by it too.
THREADS_OF_SPARK = "OMP_NUM_THREADS"
# x86-64-v3, as most machines of the last ten years have it, for libraries that can be told.
INSTRUCTIONS = {
    "NPY_DISABLE_CPU_FEATURES": "AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL "
    "AVX512_SPR X86_V4",
    "ARROW_USER_SIMD_LEVEL": "AVX2",
    "OPENBLAS_CORETYPE": "Haswell",
    "MKL_CBWR": "AVX2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "ATEN_CPU_CAPABILITY": "avx2",
}
# Levels of the x86-64 psABI by flags of the kernel, the highest first.
LEVELS = {
    "v4": {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"},
    "v3": {"avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"},
    "v2": {"cx16", "popcnt", "sse4_1", "sse4_2", "ssse3"},
}


def pinned(environment: Mapping[str, str], cpu: str | None = None) -> dict[str, str]:
    """The variables to set, beside those that an environment has; `cpu` is the kernel's description
    of this machine's."""
    found = dict.fromkeys(THREADS, "1") | {"ARROW_DEFAULT_MEMORY_POOL": "system"}
    # A library that is told to use what the CPU has not would end the process.
    if LEVELS["v3"] <= _words(_cpu() if cpu is None else cpu, "flags"):
        found |= INSTRUCTIONS
    return {name: environment.get(name, value) for name, value in found.items()} | {
        THREADS_OF_SPARK: "1"
    }


@lru_cache(maxsize=1)
def machine() -> str:
    """This machine's kind of CPU: architecture, level of instructions, maker."""
    return described(platform.machine(), _cpu())


def described(architecture: str, cpu: str) -> str:
    """A kind of CPU in words: `x86_64-v4 GenuineIntel`; of others what distinguishes them."""
    flags = _words(cpu, "flags")
    if flags:
        level = next((level for level, wanted in LEVELS.items() if wanted <= flags), "v1")
        return " ".join([f"{architecture}-{level}", *sorted(_words(cpu, "vendor_id"))])
    extensions = sorted(_words(cpu, "Features") & {"sve", "sve2", "bf16", "i8mm"})
    return " ".join([architecture, *extensions])


def _cpu() -> str:
    try:
        return CPU.read_text(errors="replace")
    except OSError:  # nothing is known of it then
        return ""


def _words(cpu: str, name: str) -> set[str]:
    """What the first processor has under a name."""
    for line in cpu.splitlines():
        key, colon, value = line.partition(":")
        if colon and key.strip() == name:
            return set(value.split())
    return set()
