"""Blocks of which a disk has changed a bit, as an executor's JVM passes them on to its host."""

import struct
import subprocess
from pathlib import Path

import java_probe
import pyarrow as pa
import pytest

from rekindle_spark.executor import frames

PROBE = """
package rekindle;

import java.io.File;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import scala.Tuple2;
import scala.collection.Iterator;

public final class Probe {
  public static void main(String[] folder) throws IOException {
    var serializer = new BlockSerializer().newInstance();
    for (String name : new File(folder[0]).list()) {
      String path = folder[0] + "/" + name;
      try (var in = new FileInputStream(path); var out = new FileOutputStream(path + ".read")) {
        Iterator<Tuple2<Object, Object>> blocks =
            serializer.deserializeStream(in).asKeyValueIterator();
        while (blocks.hasNext()) out.write((byte[]) blocks.next()._2());
      }
    }
  }
}
"""
ROWS = (4, 0, 7)
MIB = 1 << 20


def pass_on(directory: Path, heap: str) -> None:
    """Read the files in the folder `blocks`, each into one that ends in `.read`."""
    command = java_probe.command(directory, PROBE, spark=True)
    # The heap is nearly all in one piece; 20 MB of it are what a serializer of Spark loads.
    command[1:1] = [f"-Xmx{heap}", "-Xmn4m", "-XX:+UseSerialGC"]
    subprocess.run([*command, directory / "blocks"], check=True, timeout=300)


def test_no_flipped_bit_fails_and_none_goes_unseen(tmp_path: Path) -> None:
    blocks = [
        frames.encode(
            frames.Label(1, 2, target, 3, 5, 1_000), pa.table({"n": pa.array(range(rows))})
        )
        for target, rows in enumerate(ROWS)
    ]
    records = [struct.pack(">ii", target, len(one)) + one for target, one in enumerate(blocks)]
    whole, begins = b"".join(records), [0, len(records[0]), len(records[0] + records[1])]
    lengths = [begin + 4 + byte for begin in begins for byte in range(4)]
    places = sorted({*lengths, *range(0, len(whole), 23)})
    folder = tmp_path / "blocks"
    folder.mkdir()
    paths = []
    for place in places:
        for bit in range(8):
            path = folder / f"{place}-{bit}"
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << bit]) + whole[place + 1 :])
            paths.append(path)
    pass_on(tmp_path, "64m")  # a length of two gigabytes is no reason to ask for them
    right, _ = frames.sound(memoryview(b"".join(blocks)))
    for path in paths:
        found, is_sound = frames.sound(memoryview(Path(f"{path}.read").read_bytes()))
        assert found == right or not is_sound, path.name
        assert all(one in right for one in found), path.name


@pytest.mark.parametrize(("flipped", "heap"), [(0, "50m"), (64 * MIB, "64m")])
def test_a_block_of_17_mib_is_read_whole_with_little_memory_also_where_its_length_is_damaged(
    tmp_path: Path, flipped: int, heap: str
) -> None:
    block = bytes(range(256)) * (17 * MIB // 256)
    path = tmp_path / "blocks" / "long"
    path.parent.mkdir()
    path.write_bytes(struct.pack(">ii", 0, len(block) ^ flipped) + block)
    pass_on(tmp_path, heap)
    assert Path(f"{path}.read").read_bytes() == block
