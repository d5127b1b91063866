"""Blocks and indexes of which a disk has changed a bit, as an executor's JVM passes them on."""

import struct
import subprocess
from collections.abc import Iterable
from itertools import combinations, pairwise
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
# Writes the blocks of a map output, and reads stretches of it each time that a bit of the index is
# another one; then with the data file cut, and without the index.
INDEX_PROBE = """
package rekindle;

import java.io.DataOutputStream;
import java.io.File;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkEnv;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.shuffle.IndexShuffleBlockResolver;
import org.apache.spark.shuffle.sort.SortShuffleManager;
import org.apache.spark.shuffle.sort.io.LocalDiskShuffleExecutorComponents;
import org.apache.spark.storage.ShuffleBlockBatchId;
import org.apache.spark.storage.ShuffleBlockId;
import scala.Option;
import scala.Tuple2;
import scala.collection.Iterator;

public final class Probe {
  private static final int SHUFFLE = 7;
  private static final long MAP = 3;

  private static IndexShuffleBlockResolver files;
  private static Path folder;
  private static int blocks;
  // Spark reads blocks one by one where they are encrypted.
  private static int blocksTogether;

  public static void main(String[] told) throws IOException {
    folder = Path.of(told[0]);
    SparkConf conf = new SparkConf().setMaster("local[1]").setAppName("probe");
    conf.set("spark.ui.enabled", "false").set("spark.local.dir", told[0]);
    conf.set("spark.shuffle.manager", told[1]);
    conf.set("spark.io.encryption.enabled", told[2]).set("spark.shuffle.compress", told[2]);
    try (JavaSparkContext context = new JavaSparkContext(conf)) {
      SparkEnv env = SparkEnv.get();
      files = ((SortShuffleManager) env.blockingShuffleManager()).shuffleBlockResolver();
      write(env);
      blocksTogether = Boolean.parseBoolean(told[2]) ? 1 : blocks;
      read("sound");
      Path index = files.getIndexFile(SHUFFLE, MAP, Option.empty()).toPath();
      byte[] right = Files.readAllBytes(index);
      for (int bit = 0; bit < 8 * right.length; bit++) {
        byte[] wrong = right.clone();
        wrong[bit / 8] ^= (byte) (1 << bit % 8);
        Files.write(index, wrong);
        read("flip-" + bit);
      }
      Files.write(index, right);
      File data = files.getDataFile(SHUFFLE, MAP);
      try (RandomAccessFile file = new RandomAccessFile(data, "rw")) {
        file.setLength(data.length() - 1);
      }
      read("cut");
      Files.delete(index);
      read("gone");
    }
  }

  private static void write(SparkEnv env) throws IOException {
    File[] found = folder.resolve("blocks").toFile().listFiles();
    blocks = found.length;
    var output =
        new LocalDiskShuffleExecutorComponents(env.conf(), env.blockManager(), files)
            .createMapOutputWriter(SHUFFLE, MAP, blocks);
    for (int target = 0; target < blocks; target++) {
      byte[] block = Files.readAllBytes(folder.resolve("blocks").resolve("" + target));
      var plain = output.getPartitionWriter(target).openStream();
      var id = new ShuffleBlockId(SHUFFLE, MAP, target);
      var stream = env.serializerManager().wrapStream(id, plain);
      try (DataOutputStream out = new DataOutputStream(stream)) {
        BlockSerializer.put(out, target, block);
      }
    }
    long[] lengths = output.commitAllPartitions(new long[0]).getPartitionLengths();
    if (files instanceof CheckedShuffleManager.Resolver checked) {
      checked.remember(SHUFFLE, MAP, lengths);
    }
  }

  private static void read(String name) throws IOException {
    for (int begin = 0; begin < blocks; begin++) {
      for (int end = begin + 1; end <= Math.min(blocks, begin + blocksTogether); end++) {
        Path path = folder.resolve("read").resolve(name + "-" + begin + "-" + end);
        Files.write(path, read(begin, end));
      }
    }
  }

  private static byte[] read(int begin, int end) throws IOException {
    var id = new ShuffleBlockBatchId(SHUFFLE, MAP, begin, end);
    var all = new java.io.ByteArrayOutputStream();
    var plain = files.getBlockData(id, Option.empty()).createInputStream();
    var in = SparkEnv.get().serializerManager().wrapStream(id, plain);
    Iterator<Tuple2<Object, Object>> found =
        new BlockSerializer().newInstance().deserializeStream(in).asKeyValueIterator();
    while (found.hasNext()) all.write((byte[]) found.next()._2());
    return all.toByteArray();
  }
}
"""
OPENED = (
    "java.lang",
    "java.lang.invoke",
    "java.nio",
    "java.util",
    "sun.nio.ch",
    "sun.security.action",
)
ROWS = (4, 0, 7)
MIB = 1 << 20


def written_blocks(rows: Iterable[int]) -> list[bytes]:
    """A block for each of some targets, of so many rows."""
    return [
        frames.encode(
            frames.Label(1, 2, target, 3, 5, 1_000), pa.table({"n": pa.array(range(count))})
        )
        for target, count in enumerate(rows)
    ]


def pass_on(directory: Path, heap: str) -> None:
    """Read the files in the folder `blocks`, each into one that ends in `.read`."""
    command = java_probe.command(directory, PROBE, spark=True)
    # The heap is nearly all in one piece; 20 MB of it are what a serializer of Spark loads.
    command[1:1] = [f"-Xmx{heap}", "-Xmn4m", "-XX:+UseSerialGC"]
    subprocess.run([*command, directory / "blocks"], check=True, timeout=300)


def test_no_flipped_bit_fails_and_none_goes_unseen(tmp_path: Path) -> None:
    blocks = written_blocks(ROWS)
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


@pytest.mark.parametrize("wrapped", [False, True], ids=["plain", "compressed-and-encrypted"])
def test_each_flipped_bit_of_an_index_is_a_damaged_block(tmp_path: Path, wrapped: bool) -> None:
    blocks = written_blocks(ROWS)
    for folder in ("blocks", "read"):
        (tmp_path / folder).mkdir()
    for target, block in enumerate(blocks):
        (tmp_path / "blocks" / str(target)).write_bytes(block)
    command = java_probe.command(tmp_path, INDEX_PROBE, spark=True)
    command[1:1] = [f"--add-opens=java.base/{one}=ALL-UNNAMED" for one in OPENED]
    told = [tmp_path, "rekindle.CheckedShuffleManager", str(wrapped).lower()]
    subprocess.run([*command, *told], check=True, timeout=300)
    flips = [f"flip-{bit}" for bit in range(64 * (len(blocks) + 1))]
    stretches = combinations(range(len(blocks) + 1), 2)
    for begin, end in stretches if not wrapped else pairwise(range(len(blocks) + 1)):
        stretch = (tmp_path / "read" / f"sound-{begin}-{end}").read_bytes()
        assert stretch == b"".join(blocks[begin:end])
        for harm in (*flips, "cut", "gone"):
            data = (tmp_path / "read" / f"{harm}-{begin}-{end}").read_bytes()
            # what comes behind it, of another map output, is read all the same
            found, is_sound = frames.sound(memoryview(data + blocks[0]))
            assert not is_sound, harm
            assert found == frames.sound(memoryview(blocks[0]))[0], harm
