"""What an executor has of a job's outputs that others send it in pieces."""

import subprocess
from pathlib import Path

import java_probe

PROBE = """
package rekindle;

import java.util.List;

public final class Probe {
  private static final JobOutputs OUTPUTS = new JobOutputs();

  private static void add(int map, boolean isLast, int... reduces) {
    List<LinkedTask.Block> blocks = new java.util.ArrayList<>();
    for (int reduce : reduces) blocks.add(new LinkedTask.Block(reduce, new byte[] {(byte) reduce}));
    OUTPUTS.add(new LinkedTask.Output(5, 7, map, isLast, blocks));
  }

  private static void print() {
    List<byte[]> found = OUTPUTS.blocks(7, new int[] {0, 2}, new int[] {1, 4});
    StringBuilder line = new StringBuilder();
    if (found != null) for (byte[] block : found) line.append(block[0]);
    System.out.println(found == null ? "waits" : line);
  }

  public static void main(String[] arguments) {
    add(0, false, 1, 2);
    add(0, false, 1, 2);
    add(0, true, 3, 4);
    print();
    add(1, true, 2);
    print();
    add(0, true, 3, 4);
    print();
    add(0, false, 1, 2);
    add(1, true, 2);
    print();
  }
}
"""


def test_pieces_that_come_twice_change_nothing(tmp_path: Path) -> None:
    command = java_probe.command(tmp_path, PROBE)
    said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout
    assert said.split() == ["waits", "1232", "1232", "1232"]
