package rekindle;

import java.io.DataInputStream;
import java.io.IOException;
import java.io.Serializable;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.HexFormat;
import java.util.List;
import java.util.Locale;
import java.util.function.BiFunction;
import org.apache.spark.Dependency;
import org.apache.spark.Partition;
import org.apache.spark.ShuffleDependency;
import org.apache.spark.SparkContext;
import org.apache.spark.SparkEnv;
import org.apache.spark.TaskContext;
import org.apache.spark.rdd.RDD;
import org.apache.spark.util.CollectionAccumulator;
import scala.Product2;
import scala.Tuple2;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.reflect.ClassTag$;

/**
 * One level of the pipeline in one job: one task per executor, pinned there.
 *
 * <p>A task gathers its input blocks, hands them to the executor's host and passes the host's
 * output blocks on to the shuffle. It never fails by itself: what went wrong is its report, and
 * whoever reads its missing output reports that in turn.
 *
 * <p>Why: docs/decisions/0010-tasks-are-java.md.
 */
final class Stage extends RDD<Object> {
  private final transient List<Task> tasks;
  private final CollectionAccumulator<byte[]> reports;
  private final ShuffleDependency<?, ?, ?> template;

  Stage(
      SparkContext context,
      List<? extends Dependency<?>> parents,
      List<Task> tasks,
      CollectionAccumulator<byte[]> reports,
      ShuffleDependency<?, ?, ?> template) {
    super(context, sequence(parents), ClassTag$.MODULE$.apply(Object.class));
    this.tasks = tasks;
    this.reports = reports;
    this.template = template;
  }

  /** A part of one earlier or lower shuffle: map outputs and reduce ids as [begin, end) ranges. */
  static final class Read implements Serializable {
    final int shuffle;
    final int[] maps;
    final int[] reduces;

    Read(int shuffle, int[] maps, int[] reduces) {
      this.shuffle = shuffle;
      this.maps = maps;
      this.reduces = reduces;
    }
  }

  /** What one executor does at this level. */
  static final class Task implements Partition {
    final int index;
    final String host;
    final String executor;
    final byte[] header;
    final Read[] reads;

    Task(int index, String host, String executor, byte[] header, Read[] reads) {
      this.index = index;
      this.host = host;
      this.executor = executor;
      this.header = header;
      this.reads = reads;
    }

    /**
     * Tasks name partitions; `reduceIds` says where a shuffle has them. A negative shuffle -1-N is
     * that of the job's stage N.
     */
    static List<Task> readAll(DataInputStream in, BiFunction<Integer, int[], int[]> reduceIds)
        throws IOException {
      int count = in.readInt();
      List<Task> tasks = new ArrayList<>(count);
      for (int i = 0; i < count; i++) {
        String host = in.readUTF();
        String executor = in.readUTF();
        byte[] header = new byte[in.readInt()];
        in.readFully(header);
        Read[] reads = new Read[in.readInt()];
        for (int r = 0; r < reads.length; r++) {
          int shuffle = in.readInt();
          reads[r] = new Read(shuffle, ints(in), reduceIds.apply(shuffle, ints(in)));
        }
        tasks.add(new Task(i, host, executor, header, reads));
      }
      return tasks;
    }

    /** The same with the shuffles of its own job, of which those of lower stages are known. */
    Task resolved(int[] own) {
      Read[] resolved = new Read[reads.length];
      for (int r = 0; r < reads.length; r++) {
        Read read = reads[r];
        int shuffle = read.shuffle < 0 ? own[-1 - read.shuffle] : read.shuffle;
        resolved[r] = new Read(shuffle, read.maps, read.reduces);
      }
      return new Task(index, host, executor, header, resolved);
    }

    static int[] ints(DataInputStream in) throws IOException {
      int[] values = new int[in.readInt()];
      for (int i = 0; i < values.length; i++) values[i] = in.readInt();
      return values;
    }

    @Override
    public int index() {
      return index;
    }

    @Override
    public int hashCode() {
      return index;
    }

    @Override
    public boolean equals(Object other) {
      return other instanceof Task && ((Task) other).index == index;
    }
  }

  @SuppressWarnings("unchecked")
  RDD<Product2<Object, Object>> asPairs() {
    return (RDD<Product2<Object, Object>>) (RDD<?>) this;
  }

  @Override
  public Partition[] getPartitions() {
    return tasks.toArray(new Partition[0]);
  }

  @Override
  public Seq<String> getPreferredLocations(Partition split) {
    Task task = (Task) split;
    String place = "executor_" + task.host + "_" + task.executor;
    return CollectionConverters.asScala(Collections.singletonList(place)).toSeq();
  }

  @Override
  public Iterator<Object> compute(Partition split, TaskContext context) {
    Task task = (Task) split;
    HostProcess.Answer answer =
        SparkEnv.get().executorId().equals(task.executor)
            ? answer(task, () -> Blocks.read(task.reads, template, context))
            : failure(task, "refused", "ran on executor " + SparkEnv.get().executorId());
    reports.add(answer.report);
    List<Object> records = new ArrayList<>(answer.targets.length);
    for (int i = 0; i < answer.targets.length; i++) {
      records.add(new Tuple2<>(answer.targets[i], answer.blocks[i]));
    }
    return CollectionConverters.asScala(records.iterator());
  }

  /** How a task comes to its input. */
  interface Input {
    List<byte[]> blocks() throws Blocks.Unreadable;
  }

  /** Has the executor's host run a task on its input. */
  static HostProcess.Answer answer(Task task, Input input) {
    try {
      return HostProcess.get().call(task.header, input.blocks());
    } catch (Blocks.Unreadable unreadable) {
      return without(
          unreadable(task.executor, unreadable.getMessage(), unreadable.peers, unreadable.seconds));
    } catch (HostProcess.Ended ended) {
      String how =
          String.format(
              ", \"host\": %d, \"exit_code\": %d, \"note\": \"%s\"",
              ended.process, ended.exitCode, HexFormat.of().formatHex(ended.note));
      return failure(task, "host-lost", ended.getMessage(), how);
    } catch (IOException failed) {
      String what = failed.getMessage() == null ? "" : ": " + failed.getMessage();
      return failure(task, "host-lost", failed.getClass().getSimpleName() + what);
    }
  }

  /** The report of an executor that could not read from `peers`, as far as these are known. */
  static byte[] unreadable(String executor, String text, Collection<String> peers, double seconds) {
    String names = peers.isEmpty() ? "" : "\"" + String.join("\", \"", peers) + "\"";
    String links = String.format(Locale.ROOT, ", \"peers\": [%s], \"seconds\": %.3f", names, seconds);
    return report(executor, "unreadable", text, links);
  }

  private static HostProcess.Answer failure(Task task, String status, String text) {
    return failure(task, status, text, "");
  }

  private static HostProcess.Answer failure(Task task, String status, String text, String more) {
    return without(report(task.executor, status, text, more));
  }

  private static HostProcess.Answer without(byte[] report) {
    return new HostProcess.Answer(report, new int[0], new byte[0][]);
  }

  /** `more` are further fields as JSON, each behind a comma. */
  private static byte[] report(String executor, String status, String text, String more) {
    String clean = text == null ? "" : text.replace("\\", "/").replace("\"", "'").replaceAll("\\p{Cntrl}", " ");
    return String.format(
            "{\"status\": \"%s\", \"executor\": \"%s\", \"text\": \"%s\"%s}", status, executor, clean, more)
        .getBytes(StandardCharsets.UTF_8);
  }

  @SuppressWarnings("unchecked")
  private static Seq<Dependency<?>> sequence(List<? extends Dependency<?>> parents) {
    return CollectionConverters.asScala((List<Dependency<?>>) (List<?>) parents).toSeq();
  }
}
