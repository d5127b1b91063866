"""When a task over links has its turn that follows the one of the job before."""

import subprocess
from pathlib import Path

import java_probe

PROBE = """
package rekindle;

import java.util.Set;

public final class Probe {
  public static void main(String[] arguments) {
    System.out.println(Turn.of(1, null, false));
    System.out.println(Turn.of(1, Set.of(0, 1), false));
    System.out.println(Turn.of(1, Set.of(0), false));
    System.out.println(Turn.of(1, null, true));
    System.out.println(Turn.of(1, Set.of(0, 1), true));
  }
}
"""


def test_a_task_never_runs_whose_job_before_was_cancelled(tmp_path: Path) -> None:
    command = java_probe.command(tmp_path, PROBE)
    said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    assert said.split() == ["NOW", "NOW", "LATER", "NEVER", "NEVER"]
