package rekindle;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.IntStream;
import org.apache.spark.MapOutputTrackerMaster;
import org.apache.spark.SparkContext;
import org.apache.spark.SparkEnv;
import org.apache.spark.network.client.RpcResponseCallback;
import org.apache.spark.scheduler.MapStatus;
import scala.reflect.ClassTag$;

/**
 * A job whose tasks are sent to their executors at once, and whose outputs go from executor to
 * executor, without Spark's scheduler and without a barrier between stages.
 *
 * <p>What it leaves is what any job leaves: a shuffle for each stage, of which Spark knows where the
 * outputs are.
 */
final class LinkedJob implements Exchange.Job {
  /** No shuffle has this number. */
  private static final int NONE = -1;

  private final MapOutputTrackerMaster tracker;
  private final Links links;
  private final int[] shuffles;
  private final List<Links.Place> places = new ArrayList<>();
  private final AtomicInteger left = new AtomicInteger();
  private final AtomicInteger leftOfFirstStage = new AtomicInteger();
  private final TaskReports reports = new TaskReports();
  /** Bytes of frames that executors have been sent. */
  private final Map<String, Long> sent = new HashMap<>();
  /** Empty when all went well, else what failed. */
  private final CompletableFuture<String> outcome = new CompletableFuture<>();

  private LinkedJob(SparkContext context, Links links, int[] shuffles) {
    this.tracker = (MapOutputTrackerMaster) context.env().mapOutputTracker();
    this.links = links;
    this.shuffles = shuffles;
  }

  /**
   * The tasks of `stages` know the job's own shuffles by `shuffles`. Behind the job `before`, if there
   * is one, each waits for the task of the same stage and executor.
   */
  static LinkedJob submit(
      SparkContext context,
      Links links,
      Map<String, Links.Place> places,
      List<List<Stage.Task>> stages,
      int[] shuffles,
      int[] order,
      byte[] template,
      LinkedJob before)
      throws IOException {
    LinkedJob job = new LinkedJob(context, links, shuffles);
    Map<String, Integer> tasksHere = new HashMap<>();
    stages.forEach(tasks -> tasks.forEach(task -> tasksHere.merge(task.executor, 1, Integer::sum)));
    tasksHere.keySet().forEach(executor -> job.places.add(places.get(executor)));
    job.left.set(stages.stream().mapToInt(List::size).sum());
    job.leftOfFirstStage.set(stages.isEmpty() ? 0 : stages.get(0).size());
    int after = before == null ? NONE : before.shuffles[0];
    if (job.left.get() == 0) job.outcome.complete("");
    List<Map<Integer, List<LinkedTask.Reader>>> readers = readers(stages, shuffles, places);
    for (int s = 0; s < stages.size(); s++) {
      job.tracker.registerShuffle(shuffles[s], stages.get(s).size(), Math.max(1, order.length));
    }
    for (int s = 0; s < stages.size(); s++) {
      for (Stage.Task task : stages.get(s)) {
        List<LinkedTask.Reader> own = readers.get(s).getOrDefault(task.index, List.of());
        int here = tasksHere.get(task.executor);
        byte[] reading = task.reads.length == 0 ? null : template;
        LinkedTask linked =
            new LinkedTask(task, shuffles[s], order, shuffles, after, here, own, reading);
        links.send(places.get(task.executor), linked.message(), job.new Ended(task, shuffles[s], own));
      }
    }
    return job;
  }

  /** By stage and map index the executors that read an output, with the reduce ids of each. */
  private static List<Map<Integer, List<LinkedTask.Reader>>> readers(
      List<List<Stage.Task>> stages, int[] shuffles, Map<String, Links.Place> places) {
    Map<Integer, Integer> stageOf = new HashMap<>();
    for (int s = 0; s < shuffles.length; s++) stageOf.put(shuffles[s], s);
    List<Map<Integer, Map<String, List<int[]>>>> found = new ArrayList<>();
    for (int s = 0; s < shuffles.length; s++) found.add(new HashMap<>());
    for (List<Stage.Task> tasks : stages) {
      for (Stage.Task task : tasks) {
        for (Stage.Read read : task.reads) {
          Integer stage = stageOf.get(read.shuffle);
          if (stage == null) continue;
          for (int m = 0; m < read.maps.length; m += 2) {
            for (int map = read.maps[m]; map < read.maps[m + 1]; map++) {
              found
                  .get(stage)
                  .computeIfAbsent(map, index -> new LinkedHashMap<>())
                  .computeIfAbsent(task.executor, executor -> new ArrayList<>())
                  .add(read.reduces);
            }
          }
        }
      }
    }
    List<Map<Integer, List<LinkedTask.Reader>>> all = new ArrayList<>();
    for (Map<Integer, Map<String, List<int[]>>> stage : found) {
      Map<Integer, List<LinkedTask.Reader>> byMap = new HashMap<>();
      stage.forEach(
          (map, executors) -> {
            List<LinkedTask.Reader> readers = new ArrayList<>();
            executors.forEach(
                (executor, reduces) -> {
                  int[] joined = reduces.stream().flatMapToInt(IntStream::of).toArray();
                  readers.add(new LinkedTask.Reader(executor, places.get(executor), joined));
                });
            byMap.put(map, readers);
          });
      all.add(byMap);
    }
    return all;
  }

  /** What becomes of one task. */
  private final class Ended implements RpcResponseCallback {
    private final Stage.Task task;
    private final int shuffle;
    private final List<LinkedTask.Reader> readers;

    Ended(Stage.Task task, int shuffle, List<LinkedTask.Reader> readers) {
      this.task = task;
      this.shuffle = shuffle;
      this.readers = readers;
    }

    /** What comes after the job has ended counts no more: its shuffles may be removed already. */
    @Override
    public void onSuccess(ByteBuffer answer) {
      synchronized (outcome) {
        if (outcome.isDone()) return;
        try {
          for (int count = answer.getInt(); count > 0; count--) {
            byte[] report = new byte[answer.getInt()];
            answer.get(report);
            reports.add(report);
          }
          for (LinkedTask.Reader reader : readers) {
            sent.merge(reader.executor(), answer.getLong(), Long::sum);
          }
          MapStatus status =
              SparkEnv.get()
                  .closureSerializer()
                  .newInstance()
                  .deserialize(answer, ClassTag$.MODULE$.apply(MapStatus.class));
          tracker.registerMapOutput(shuffle, task.index, status);
          if (shuffle == shuffles[0]) leftOfFirstStage.decrementAndGet();
          if (left.decrementAndGet() == 0) outcome.complete("");
        } catch (Exception failed) { // one that left here would close the connection
          end(failed);
        }
      }
    }

    @Override
    public void onFailure(Throwable failed) {
      end(failed);
    }

    /** In the words in which Spark says it of its own tasks. */
    private void end(Throwable failed) {
      give(
          String.format(
              "Lost task %d.0 (TID 0) (%s executor %s): %s", task.index, task.host, task.executor, failed));
    }
  }

  /** Ends the job without success: its tasks are called off, wherever they wait or run. */
  private void give(String reason) {
    synchronized (outcome) {
      if (!outcome.complete(reason)) return;
    }
    for (Links.Place place : places) {
      links.send(
          place,
          LinkedTask.cancelMessage(shuffles),
          new RpcResponseCallback() {
            @Override
            public void onSuccess(ByteBuffer nothing) {}

            // it has ended, or will, or is dropped
            @Override
            public void onFailure(Throwable gone) {}
          });
    }
  }

  @Override
  public boolean await_(long milliseconds) throws InterruptedException {
    try {
      outcome.get(milliseconds, TimeUnit.MILLISECONDS);
      return true;
    } catch (TimeoutException goesOn) {
      return false;
    } catch (ExecutionException never) {
      throw new IllegalStateException(never);
    }
  }

  @Override
  public String failure() {
    return outcome.getNow("");
  }

  @Override
  public int shuffle(int stage) {
    return shuffles[stage];
  }

  @Override
  public boolean isLinked() {
    return true;
  }

  @Override
  public boolean isPastFirstStage() {
    return leftOfFirstStage.get() == 0 && failure().isEmpty();
  }

  @Override
  public String held() {
    StringBuilder lines = new StringBuilder();
    synchronized (outcome) {
      sent.forEach((executor, bytes) -> lines.append(executor).append(' ').append(bytes).append('\n'));
    }
    String driver = SparkEnv.get().executorId();
    return lines.append(driver).append(' ').append(reports.bytes()).toString();
  }

  @Override
  public byte[] reports() throws IOException {
    return reports.encoded();
  }

  @Override
  public void cancel(String reason) {
    give(reason);
  }
}
