package rekindle;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/**
 * What tasks of one job have sent here, or keep for this executor in a file, by shuffle and map index.
 * What comes twice changes nothing, also after it has been used.
 */
final class JobOutputs {
  /** Of one output: blocks that are here, by reduce id, or where they wait. */
  private static final class Arrived {
    final String from;
    final Map<Integer, byte[]> blocks = new TreeMap<>();
    LinkedTask.Stored stored;
    boolean isWhole;

    Arrived(String from) {
      this.from = from;
    }
  }

  /** What a task reads of outputs that are whole: blocks that are here, and others that wait. */
  record Found(List<byte[]> blocks, List<LinkedTask.Stored> stored) {}

  private final Map<Long, Arrived> outputs = new HashMap<>();
  /** By sender the bytes of blocks that are here, and of those that wait in its files. */
  private final Map<String, Long> heldBytes = new HashMap<>();
  private final Map<String, Long> storedBytes = new HashMap<>();

  void add(LinkedTask.Output piece) {
    Arrived output =
        outputs.computeIfAbsent(key(piece.shuffle(), piece.map()), one -> new Arrived(piece.from()));
    if (output.isWhole) return;
    for (LinkedTask.Block block : piece.blocks()) {
      if (output.blocks.put(block.reduce(), block.bytes()) == null) {
        heldBytes.merge(output.from, (long) block.bytes().length, Long::sum);
      }
    }
    output.isWhole = piece.isLast();
  }

  void add(LinkedTask.Stored stored) {
    Arrived output =
        outputs.computeIfAbsent(key(stored.shuffle(), stored.map()), one -> new Arrived(stored.from()));
    if (output.isWhole) return;
    output.stored = stored;
    output.isWhole = true;
    storedBytes.merge(output.from, bytes(stored), Long::sum);
  }

  /** What there is of some outputs for some reduce ids, both as stretches; null until all are here. */
  Found find(int shuffle, int[] maps, int[] reduces) {
    Found found = new Found(new ArrayList<>(), new ArrayList<>());
    for (int m = 0; m < maps.length; m += 2) {
      for (int map = maps[m]; map < maps[m + 1]; map++) {
        Arrived output = outputs.get(key(shuffle, map));
        if (output == null || !output.isWhole) return null;
        output.blocks.forEach(
            (reduce, bytes) -> {
              if (isAmong(reduce, reduces)) found.blocks().add(bytes);
            });
        LinkedTask.Stored stored = output.stored == null ? null : output.stored.among(reduces);
        if (stored != null && !stored.sizes().isEmpty()) found.stored().add(stored);
      }
    }
    return found;
  }

  /** Lets go what a task has worked on. Each reduce id is of one operator partition, of one task. */
  void release(int shuffle, int[] maps, int[] reduces) {
    for (int m = 0; m < maps.length; m += 2) {
      for (int map = maps[m]; map < maps[m + 1]; map++) {
        Arrived output = outputs.get(key(shuffle, map));
        if (output == null || !output.isWhole) continue;
        output.blocks.entrySet().removeIf(block -> isReleased(output.from, block, reduces));
        if (output.stored == null) continue;
        storedBytes.merge(output.from, -bytes(output.stored.among(reduces)), Long::sum);
        output.stored.sizes().keySet().removeIf(reduce -> isAmong(reduce, reduces));
      }
    }
  }

  private boolean isReleased(String from, Map.Entry<Integer, byte[]> block, int[] reduces) {
    if (!isAmong(block.getKey(), reduces)) return false;
    heldBytes.merge(from, -(long) block.getValue().length, Long::sum);
    return true;
  }

  /** Bytes of blocks that are here from a sender. */
  long heldBytes(String from) {
    return heldBytes.getOrDefault(from, 0L);
  }

  /** By sender the bytes of blocks that wait in its files. */
  Map<String, Long> storedBytes() {
    return storedBytes;
  }

  /** Whether a number is in one of the stretches: begin and end of each, one after the other. */
  static boolean isAmong(int number, int[] stretches) {
    for (int i = 0; i < stretches.length; i += 2) {
      if (stretches[i] <= number && number < stretches[i + 1]) return true;
    }
    return false;
  }

  private static long bytes(LinkedTask.Stored stored) {
    return stored.sizes().values().stream().mapToLong(Long::longValue).sum();
  }

  private static long key(int shuffle, int map) {
    return ((long) shuffle << Integer.SIZE) | map;
  }
}
