"""A new interpreter with the product on its path, for behaviour that only a fresh process shows."""

import subprocess
import sys


def run_code(
    code: str, *arguments: str, timeout: float | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `code` with nothing of this process's environment; its exit code is not checked."""
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
    )


def traced_peak(code: str, *arguments: str) -> int:
    """The most bytes that Python's objects take while `code` runs, which has run once before.

    In this process other threads, as earlier tests leave them, would be counted as well.
    """
    traced = f"import tracemalloc\n{code}\ntracemalloc.start()\n{code}\n"
    done = run_code(f"{traced}print(tracemalloc.get_traced_memory()[1])", *arguments)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)
