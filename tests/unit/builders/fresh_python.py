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
