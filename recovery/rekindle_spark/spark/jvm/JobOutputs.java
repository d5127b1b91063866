package rekindle;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/**
 * What tasks of one job have sent here, by shuffle and map index. What comes twice changes nothing.
 */
final class JobOutputs {
  /** Blocks by reduce id: of outputs of which pieces are still to come, and of all others. */
  private final Map<Long, Map<Integer, byte[]>> coming = new HashMap<>();
  private final Map<Long, Map<Integer, byte[]>> whole = new HashMap<>();

  void add(LinkedTask.Output piece) {
    long key = key(piece.shuffle(), piece.map());
    if (whole.containsKey(key)) return;
    Map<Integer, byte[]> blocks = coming.computeIfAbsent(key, one -> new TreeMap<>());
    for (LinkedTask.Block block : piece.blocks()) blocks.put(block.reduce(), block.bytes());
    if (piece.isLast()) whole.put(key, coming.remove(key));
  }

  /** The blocks of some outputs for some reduce ids, both as stretches; null until all are here. */
  List<byte[]> blocks(int shuffle, int[] maps, int[] reduces) {
    List<byte[]> found = new ArrayList<>();
    for (int m = 0; m < maps.length; m += 2) {
      for (int map = maps[m]; map < maps[m + 1]; map++) {
        Map<Integer, byte[]> blocks = whole.get(key(shuffle, map));
        if (blocks == null) return null;
        blocks.forEach(
            (reduce, bytes) -> {
              if (isAmong(reduce, reduces)) found.add(bytes);
            });
      }
    }
    return found;
  }

  /** Whether a number is in one of the stretches: begin and end of each, one after the other. */
  static boolean isAmong(int number, int[] stretches) {
    for (int i = 0; i < stretches.length; i += 2) {
      if (stretches[i] <= number && number < stretches[i + 1]) return true;
    }
    return false;
  }

  private static long key(int shuffle, int map) {
    return ((long) shuffle << Integer.SIZE) | map;
  }
}
