package rekindle.flink;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.LongBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;

/**
 * Converted rows of a source, mapped into memory: whole numbers of 8 bytes, row by row.
 *
 * <p>`NAME.rows` begins each row with its place among the rows of all sources, and the number that
 * decides about its split; after them come the columns. Texts are numbers of lines in
 * `texts`. `rekindle_peers.flink.flink_conversion` writes both.
 */
final class Table {
  /** What stands for a value that is not there. */
  static final long NONE = Long.MIN_VALUE;

  private static final int ORDER = 0;
  private static final int SPREAD = 1;
  private static final int FIRST = 2;

  private final LongBuffer values;
  private final int width;
  private final int rows;
  private final long lap;
  private final String[] texts;

  /** `lap` is the number of rows of all sources together. */
  Table(Path folder, String name, int columns, long lap) {
    this.lap = lap;
    width = FIRST + columns;
    try (FileChannel file = FileChannel.open(folder.resolve(name + ".rows"))) {
      values = file.map(FileChannel.MapMode.READ_ONLY, 0, file.size()).asLongBuffer();
      List<String> lines = Files.readAllLines(folder.resolve("texts"));
      texts = lines.toArray(new String[0]);
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
    rows = values.limit() / width;
  }

  /** How many rows of all sources come before row `number`, which counts on over all laps. */
  long order(long number) {
    return number / rows * lap + values.get(begin(number) + ORDER);
  }

  int split(long number, int splits) {
    return (int) (values.get(begin(number) + SPREAD) % splits);
  }

  long lapOf(long number) {
    return number / rows;
  }

  long value(long number, int column) {
    return values.get(begin(number) + FIRST + column);
  }

  String text(long number, int column) {
    return texts[(int) value(number, column)];
  }

  private int begin(long number) {
    return (int) (number % rows) * width;
  }
}
