package rekindle;

import java.io.ByteArrayInputStream;
import java.io.DataInputStream;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.lang.management.MemoryPoolMXBean;
import java.lang.management.MemoryType;
import java.lang.management.MemoryUsage;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.BitSet;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.spark.Partitioner;
import org.apache.spark.ShuffleDependency;
import org.apache.spark.SimpleFutureAction;
import org.apache.spark.SparkContext;
import org.apache.spark.SparkEnv;
import org.apache.spark.scheduler.ExecutorProcessLost;
import org.apache.spark.scheduler.cluster.CoarseGrainedClusterMessages.RemoveExecutor;
import org.apache.spark.scheduler.cluster.CoarseGrainedSchedulerBackend;
import org.apache.spark.status.api.v1.ExecutorSummary;
import org.apache.spark.util.AccumulatorV2;
import org.apache.spark.util.CollectionAccumulator;
import scala.Option;
import scala.reflect.ClassTag;
import scala.reflect.ClassTag$;

/**
 * What Spark does not offer to Python, for the driver: jobs whose tasks are pinned to executors,
 * shuffles that stay until they are removed, and removal of an executor that does not answer.
 *
 * <p>A job is a chain of map stages, described by one byte array (see jobs.py). Every stage's
 * output is a shuffle with a reduce id for each operator partition, in an order of the job's own.
 * Shuffles of earlier jobs are read without declaring a dependency: Spark would otherwise fill holes
 * in them by lineage, which is wrong for state.
 */
public final class Exchange {
  private static final ClassTag<Object> ANY = ClassTag$.MODULE$.apply(Object.class);
  /** A scheduler that does not answer has ended, or ends soon. */
  private static final long CANCEL_MILLIS_MAX = 10_000;

  private final SparkContext context;
  private final Leftovers leftovers;
  private final ShuffleDependency<Object, Object, Object> template;
  /** By shuffle the reduce ids that partitions have in it. */
  private final Map<Integer, Targets> retained = new ConcurrentHashMap<>();
  /** Made when it is first needed, and what reads shuffles of earlier jobs, serialised. */
  private Links links;
  private byte[] serializedTemplate;

  public Exchange(SparkContext context) {
    this.context = context;
    CarriedBroadcasts.install(context);
    this.leftovers = new Leftovers(context);
    Stage empty = new Stage(context, List.of(), List.of(), null, null);
    this.template = dependency(empty, new Targets(new int[0]));
  }

  /** Reports of tasks, and when each came in here: executors have clocks of their own. */
  static final class Reports extends CollectionAccumulator<byte[]> {
    private final transient TaskReports reports = new TaskReports();

    @Override
    public synchronized void merge(AccumulatorV2<byte[], List<byte[]>> other) {
      super.merge(other);
      other.value().forEach(reports::add);
    }
  }

  /** A submitted job: its shuffles, its end, the reports of its tasks. */
  public interface Job {
    /** Whether it has ended, waiting for it so long. */
    boolean await_(long milliseconds) throws InterruptedException;

    /** Empty when the job went well, else what Spark says. */
    String failure();

    int shuffle(int stage);

    /** Whether it goes over links. */
    boolean isLinked();

    /** Whether it goes over links, and all tasks of its first stage have ended. */
    boolean isPastFirstStage();

    /**
     * What each process holds of it at most until it counts, over links: "id bytes" lines, of executors
     * for frames that they have been sent, of the driver for reports.
     */
    String held();

    /** All reports so far: count, then nanoseconds since the submission, length, bytes of each. */
    byte[] reports() throws IOException;

    /** Gives it up; once this returns no output of it is registered any more. */
    void cancel(String reason) throws InterruptedException;
  }

  /** A job of Spark's. */
  private final class SparkJob implements Job {
    private final SimpleFutureAction<?> action;
    private final Reports reports;
    private final int[] shuffles;
    private final Runnable ended;
    private final int id;

    SparkJob(SimpleFutureAction<?> action, Reports reports, int[] shuffles, Runnable ended) {
      this.action = action;
      this.reports = reports;
      this.shuffles = shuffles;
      this.ended = ended;
      this.id = (Integer) action.jobIds().head();
    }

    @Override
    public boolean await_(long milliseconds) throws InterruptedException {
      long end = System.nanoTime() + milliseconds * 1_000_000L;
      while (!action.isCompleted() && System.nanoTime() < end) Thread.sleep(2);
      if (!action.isCompleted()) return false;
      ended.run();
      return true;
    }

    @Override
    public String failure() {
      Object outcome = action.value().get();
      if (outcome instanceof scala.util.Failure) {
        return String.valueOf(((scala.util.Failure<?>) outcome).exception().getMessage());
      }
      return "";
    }

    @Override
    public int shuffle(int stage) {
      return shuffles[stage];
    }

    @Override
    public boolean isLinked() {
      return false;
    }

    @Override
    public boolean isPastFirstStage() {
      return false;
    }

    @Override
    public String held() {
      return "";
    }

    @Override
    public byte[] reports() throws IOException {
      return reports.reports.encoded();
    }

    /**
     * Returns once the scheduler has let go of its stages: of a task that ends before that it
     * registers the output, and where the shuffle has been removed, the scheduler dies of it.
     */
    @Override
    public void cancel(String reason) throws InterruptedException {
      action.cancel(Option.apply(reason));
      context.cancelJob(id, reason);
      await_(CANCEL_MILLIS_MAX);
      ended.run();
    }
  }

  /**
   * Submits a job: the order of operator partitions in its output, then its stages. `linked`: over
   * links, where all its executors can be reached by one.
   */
  public Job submit(byte[] specification, boolean linked) throws IOException {
    DataInputStream in = new DataInputStream(new ByteArrayInputStream(specification));
    Targets targets = new Targets(Stage.Task.ints(in));
    List<List<Stage.Task>> stages = stages(in, targets);
    Map<String, Links.Place> places = linked ? places(stages) : Map.of();
    if (!places.isEmpty()) return submit(targets, stages, places, null);
    Long mark = leftovers.begin();
    Runnable ended = () -> leftovers.end(mark);
    try {
      return submit(targets, stages, ended);
    } catch (RuntimeException failed) {
      ended.run();
      throw failed;
    }
  }

  /**
   * Submits a job whose tasks have the partitions of those of `before`, each behind that one; null
   * where one of its executors has no link any more.
   */
  public Job follow(byte[] specification, Job before) throws IOException {
    DataInputStream in = new DataInputStream(new ByteArrayInputStream(specification));
    Targets targets = new Targets(Stage.Task.ints(in));
    List<List<Stage.Task>> stages = stages(in, targets);
    Map<String, Links.Place> places = places(stages);
    return places.isEmpty() ? null : submit(targets, stages, places, (LinkedJob) before);
  }

  private List<List<Stage.Task>> stages(DataInputStream in, Targets targets) throws IOException {
    List<List<Stage.Task>> stages = new ArrayList<>();
    for (int left = in.readInt(); left > 0; left--) {
      stages.add(Stage.Task.readAll(in, (shuffle, of) -> reduceIds(shuffle, of, targets)));
    }
    return stages;
  }

  private Job submit(Targets targets, List<List<Stage.Task>> stages, Runnable ended) {
    Reports reports = new Reports();
    context.register(reports);
    List<ShuffleDependency<Object, Object, Object>> own = new ArrayList<>();
    int[] shuffles = new int[stages.size()];
    for (int s = 0; s < shuffles.length; s++) {
      List<Stage.Task> tasks = resolved(stages.get(s), shuffles);
      Stage stage = new Stage(context, new ArrayList<>(own), tasks, reports, template);
      ShuffleDependency<Object, Object, Object> output = dependency(stage, targets);
      shuffles[s] = output.shuffleId();
      own.add(output);
      retained.put(output.shuffleId(), targets);
    }
    return new SparkJob(context.submitMapStage(own.get(shuffles.length - 1)), reports, shuffles, ended);
  }

  private Job submit(
      Targets targets,
      List<List<Stage.Task>> stages,
      Map<String, Links.Place> places,
      LinkedJob before)
      throws IOException {
    if (links == null) {
      links = new Links(SparkEnv.get(), null);
      ByteBuffer bytes =
          SparkEnv.get()
              .closureSerializer()
              .newInstance()
              .serialize(template, ClassTag$.MODULE$.apply(ShuffleDependency.class));
      serializedTemplate = new byte[bytes.remaining()];
      bytes.get(serializedTemplate);
    }
    int[] shuffles = stages.stream().mapToInt(tasks -> context.newShuffleId()).toArray();
    for (int shuffle : shuffles) retained.put(shuffle, targets);
    List<List<Stage.Task>> tasks = new ArrayList<>();
    for (List<Stage.Task> stage : stages) tasks.add(resolved(stage, shuffles));
    return LinkedJob.submit(
        context, links, places, tasks, shuffles, targets.order(), serializedTemplate, before);
  }

  private static List<Stage.Task> resolved(List<Stage.Task> tasks, int[] shuffles) {
    return tasks.stream().map(task -> task.resolved(shuffles)).collect(Collectors.toList());
  }

  /** Where each executor of a job is reached by a link; empty unless all of them are. */
  private static Map<String, Links.Place> places(List<List<Stage.Task>> stages) {
    Map<String, Links.Place> places = new HashMap<>();
    for (List<Stage.Task> tasks : stages) {
      for (Stage.Task task : tasks) {
        HostPlugin.Seen seen = HostPlugin.SEEN.get(task.executor);
        if (seen == null || seen.hello.linkPort == 0) return Map.of();
        places.put(task.executor, new Links.Place(seen.hello.host, seen.hello.linkPort));
      }
    }
    return places;
  }

  /** Removes shuffles: files on the executors, map output records, the dependency itself. */
  public void remove(byte[] shuffleIds) throws IOException {
    DataInputStream in = new DataInputStream(new ByteArrayInputStream(shuffleIds));
    for (int n = in.readInt(); n > 0; n--) {
      int shuffle = in.readInt();
      retained.remove(shuffle);
      leftovers.removeShuffle(shuffle);
    }
  }

  public int retainedCount() {
    return retained.size();
  }

  /**
   * Executors that Spark counts and whose plugin has said hello: "id host silent-ms connected linked
   * node" lines.
   *
   * <p>On Kubernetes Spark goes on to count one whose connection has ended, and gives it no tasks,
   * until the API server says that its pod is gone.
   */
  public String executors() {
    CoarseGrainedSchedulerBackend backend =
        (CoarseGrainedSchedulerBackend) context.schedulerBackend();
    StringBuilder lines = new StringBuilder();
    scala.collection.Iterator<String> ids = context.getExecutorIds().iterator();
    while (ids.hasNext()) {
      String id = ids.next();
      HostPlugin.Seen seen = HostPlugin.SEEN.get(id);
      if (seen == null) continue;
      long silent = (System.nanoTime() - seen.at) / 1_000_000L;
      lines.append(id).append(' ').append(seen.hello.host).append(' ').append(silent);
      lines.append(' ').append(backend.isExecutorActive(id));
      lines.append(' ').append(seen.hello.linkPort != 0);
      lines.append(' ').append(seen.hello.node).append('\n');
    }
    return lines.toString();
  }

  /** What each executor's last message said that it has done: "id hexadecimal-digits" lines. */
  public String signs() {
    StringBuilder lines = new StringBuilder();
    scala.collection.Iterator<String> ids = context.getExecutorIds().iterator();
    while (ids.hasNext()) {
      String id = ids.next();
      HostPlugin.Seen seen = HostPlugin.SEEN.get(id);
      if (seen == null) continue;
      lines.append(id).append(' ').append(HexFormat.of().formatHex(seen.hello.signs)).append('\n');
    }
    return lines.toString();
  }

  /**
   * What waits on links, as executors have last said: "producer reader sent stored refusals" lines. A
   * link may have one from each end (`LinkedTasks`).
   */
  public String waiting() {
    StringBuilder lines = new StringBuilder();
    scala.collection.Iterator<String> ids = context.getExecutorIds().iterator();
    while (ids.hasNext()) {
      HostPlugin.Seen seen = HostPlugin.SEEN.get(ids.next());
      if (seen != null) lines.append(seen.hello.waiting);
    }
    return lines.toString();
  }

  /** How many tasks each executor can run at a time: "id slots" lines. */
  public String slots() {
    StringBuilder lines = new StringBuilder();
    scala.collection.Iterator<ExecutorSummary> known =
        context.statusStore().executorList(true).iterator();
    while (known.hasNext()) {
      ExecutorSummary executor = known.next();
      lines.append(executor.id()).append(' ').append(executor.maxTasks()).append('\n');
    }
    return lines.toString();
  }

  /** Takes an executor out of the scheduler without asking it: it may never answer. */
  public void drop(String executor, String reason) {
    HostPlugin.DROPPED.add(executor);
    CoarseGrainedSchedulerBackend backend =
        (CoarseGrainedSchedulerBackend) context.schedulerBackend();
    backend
        .driverEndpoint()
        .send(new RemoveExecutor(executor, new ExecutorProcessLost(reason, Option.empty(), false)));
  }

  /** What was alive on the heap after the last collections. */
  public long liveHeapBytes() {
    long live = 0;
    for (MemoryPoolMXBean pool : ManagementFactory.getMemoryPoolMXBeans()) {
      MemoryUsage usage = pool.getCollectionUsage();
      if (pool.getType() == MemoryType.HEAP && usage != null) live += usage.getUsed();
    }
    return live;
  }

  /**
   * The reduce ids that some operator partitions, given as stretches, have in a shuffle; a negative
   * one is of the job that is submitted.
   */
  private int[] reduceIds(int shuffle, int[] partitions, Targets own) {
    Targets known = shuffle < 0 ? own : retained.get(shuffle);
    // one that was removed cannot be read by any id
    return known == null ? partitions : known.stretches(partitions);
  }

  private ShuffleDependency<Object, Object, Object> dependency(Stage stage, Targets targets) {
    return new ShuffleDependency<>(
        stage.asPairs(),
        targets,
        new BlockSerializer(),
        Option.empty(),
        Option.empty(),
        false,
        new BlockWriter(),
        ANY,
        ANY,
        ANY);
  }

  /** A reduce id for each operator partition: its place in an order. A record's key is the latter. */
  static final class Targets extends Partitioner {
    private final int[] order;
    private final int[] places;

    /** `order` has every partition once. */
    Targets(int[] order) {
      this.order = order;
      this.places = new int[order.length];
      for (int place = 0; place < order.length; place++) places[order[place]] = place;
    }

    int[] order() {
      return order;
    }

    /** The places of partitions; both are stretches: begin and end of each, one after the other. */
    int[] stretches(int[] partitions) {
      BitSet found = new BitSet(places.length);
      for (int i = 0; i < partitions.length; i += 2) {
        for (int partition = partitions[i]; partition < partitions[i + 1]; partition++) {
          found.set(places[partition]);
        }
      }
      IntStream.Builder stretches = IntStream.builder();
      for (int begin = found.nextSetBit(0); begin >= 0; ) {
        int end = found.nextClearBit(begin);
        stretches.add(begin).add(end);
        begin = found.nextSetBit(end);
      }
      return stretches.build().toArray();
    }

    @Override
    public int numPartitions() {
      return Math.max(1, places.length);
    }

    @Override
    public int getPartition(Object key) {
      return places[(Integer) key];
    }

    @Override
    public boolean equals(Object other) {
      return other instanceof Targets && Arrays.equals(((Targets) other).places, places);
    }

    @Override
    public int hashCode() {
      return Arrays.hashCode(places);
    }
  }
}
