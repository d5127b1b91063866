package rekindle.flink;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import org.apache.flink.streaming.api.functions.windowing.ProcessAllWindowFunction;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.util.Collector;

/** The first rows of each window in an order, with their places. */
final class Top<T extends Ranked> extends ProcessAllWindowFunction<T, T, TimeWindow> {
  private final int count;
  private final Order<T> order;

  Top(int count, Order<T> order) {
    this.count = count;
    this.order = order;
  }

  @Override
  public void process(Context context, Iterable<T> rows, Collector<T> output) {
    List<T> sorted = new ArrayList<>();
    rows.forEach(sorted::add);
    sorted.sort(order);
    for (int rank = 1; rank <= Math.min(count, sorted.size()); rank++) {
      T row = sorted.get(rank - 1);
      row.place(rank);
      output.collect(row);
    }
  }

  /** The largest of a figure first, then by name. */
  interface Order<T> extends Comparator<T>, Serializable {
    long figure(T row);

    String name(T row);

    @Override
    default int compare(T one, T other) {
      int order = Long.compare(figure(other), figure(one));
      return order != 0 ? order : name(one).compareTo(name(other));
    }
  }
}
