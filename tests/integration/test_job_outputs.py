"""What an executor has of a job's outputs that others send it in pieces, or keep in files."""

import subprocess
from pathlib import Path

import java_probe

PROBE = """
package rekindle;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

public final class Probe {
  private static final JobOutputs OUTPUTS = new JobOutputs();
  private static final int[] MAPS = {0, 2};

  private static void add(int map, boolean isLast, int... reduces) {
    List<LinkedTask.Block> blocks = new ArrayList<>();
    for (int reduce : reduces) blocks.add(new LinkedTask.Block(reduce, new byte[] {(byte) reduce}));
    OUTPUTS.add(new LinkedTask.Output("3", 5, 7, map, isLast, blocks));
  }

  private static void store(int map, int... reduces) {
    Map<Integer, Long> sizes = new TreeMap<>();
    for (int reduce : reduces) sizes.put(reduce, 100L + reduce);
    OUTPUTS.add(new LinkedTask.Stored("3", 5, 7, map, "10.0.0.7", 7337, sizes));
  }

  private static void print(int... reduces) {
    JobOutputs.Found found = OUTPUTS.find(7, MAPS, reduces);
    StringBuilder line = new StringBuilder(found == null ? "waits" : "has:");
    if (found != null) {
      for (byte[] block : found.blocks()) line.append(block[0]);
      found.stored().forEach(one -> line.append(one.map()).append(one.sizes().keySet()));
    }
    line.append(" holds:").append(OUTPUTS.heldBytes("3"));
    line.append(" of-4:").append(OUTPUTS.heldBytes("4"));
    line.append(" stored:").append(OUTPUTS.storedBytes().getOrDefault("3", 0L));
    System.out.println(line);
  }

  public static void main(String[] told) {
    add(0, false, 1, 2);
    add(0, false, 1, 2);
    print(1, 4);
    add(0, true, 3, 4);
    print(1, 4);
    if (told[0].equals("sent")) add(1, true, 2);
    else store(1, 2, 3, 9);
    print(1, 4);
    add(0, true, 3, 4);
    add(0, false, 1, 2);
    if (told[0].equals("sent")) add(1, true, 2);
    else store(1, 2, 3, 9);
    print(1, 4);
    OUTPUTS.release(7, MAPS, new int[] {1, 4});
    print(1, 4);
    print(4, 10);
    add(0, false, 1, 2);
    OUTPUTS.release(7, MAPS, new int[] {1, 4});
    print(1, 4);
    OUTPUTS.release(7, MAPS, new int[] {4, 10});
    print(4, 10);
  }
}
"""


def said(tmp_path: Path, told: str) -> list[str]:
    command = [*java_probe.command(tmp_path, PROBE), told]
    run = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
    return run.stdout.splitlines()


def test_pieces_that_come_twice_or_after_their_use_change_nothing(tmp_path: Path) -> None:
    assert said(tmp_path, "sent") == [
        "waits holds:2 of-4:0 stored:0",
        "waits holds:4 of-4:0 stored:0",
        "has:1232 holds:5 of-4:0 stored:0",
        "has:1232 holds:5 of-4:0 stored:0",
        "has: holds:1 of-4:0 stored:0",
        "has:4 holds:1 of-4:0 stored:0",
        "has: holds:1 of-4:0 stored:0",
        "has: holds:0 of-4:0 stored:0",
    ]


def test_what_waits_in_a_file_is_found_by_the_task_that_reads_it_and_takes_no_room(
    tmp_path: Path,
) -> None:
    assert said(tmp_path, "stored") == [
        "waits holds:2 of-4:0 stored:0",
        "waits holds:4 of-4:0 stored:0",
        "has:1231[2, 3] holds:4 of-4:0 stored:314",
        "has:1231[2, 3] holds:4 of-4:0 stored:314",
        "has: holds:1 of-4:0 stored:109",
        "has:41[9] holds:1 of-4:0 stored:109",
        "has: holds:1 of-4:0 stored:109",
        "has: holds:0 of-4:0 stored:0",
    ]
