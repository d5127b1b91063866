package rekindle;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.lang.management.MemoryPoolMXBean;
import java.lang.management.MemoryType;
import java.lang.management.MemoryUsage;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.BitSet;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.IntStream;
import org.apache.spark.Partitioner;
import org.apache.spark.ShuffleDependency;
import org.apache.spark.SimpleFutureAction;
import org.apache.spark.SparkContext;
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
  private final Map<Integer, ShuffleDependency<Object, Object, Object>> retained =
      new ConcurrentHashMap<>();

  public Exchange(SparkContext context) {
    this.context = context;
    CarriedBroadcasts.install(context);
    this.leftovers = new Leftovers(context);
    Stage empty = new Stage(context, List.of(), List.of(), null, null);
    this.template = dependency(empty, new Targets(new int[0]));
  }

  /** Reports of tasks, and when each came in here: executors have clocks of their own. */
  static final class Reports extends CollectionAccumulator<byte[]> {
    private final long began = System.nanoTime();
    private final List<Long> arrived = new ArrayList<>();

    @Override
    public synchronized void merge(AccumulatorV2<byte[], List<byte[]>> other) {
      super.merge(other);
      long now = System.nanoTime() - began;
      while (arrived.size() < value().size()) arrived.add(now);
    }
  }

  /** One submitted job: its shuffles, its end, the reports of its tasks. */
  public static final class Job {
    private final SimpleFutureAction<?> action;
    private final Reports reports;
    private final int[] shuffles;
    private final Runnable ended;
    private final int id;

    Job(SimpleFutureAction<?> action, Reports reports, int[] shuffles, Runnable ended) {
      this.action = action;
      this.reports = reports;
      this.shuffles = shuffles;
      this.ended = ended;
      this.id = (Integer) action.jobIds().head();
    }

    public boolean await_(long milliseconds) throws InterruptedException {
      long end = System.nanoTime() + milliseconds * 1_000_000L;
      while (!action.isCompleted() && System.nanoTime() < end) Thread.sleep(2);
      if (!action.isCompleted()) return false;
      ended.run();
      return true;
    }

    /** Empty when the job went well, else what Spark says. */
    public String failure() {
      Object outcome = action.value().get();
      if (outcome instanceof scala.util.Failure) {
        return String.valueOf(((scala.util.Failure<?>) outcome).exception().getMessage());
      }
      return "";
    }

    public int shuffle(int stage) {
      return shuffles[stage];
    }

    /** All reports so far: count, then nanoseconds since the submission, length, bytes of each. */
    public byte[] reports() throws IOException {
      List<byte[]> all;
      List<Long> arrived;
      synchronized (reports) {
        all = new ArrayList<>(reports.value());
        arrived = new ArrayList<>(reports.arrived);
      }
      ByteArrayOutputStream bytes = new ByteArrayOutputStream();
      DataOutputStream out = new DataOutputStream(bytes);
      out.writeInt(all.size());
      for (int i = 0; i < all.size(); i++) {
        out.writeLong(arrived.get(i));
        out.writeInt(all.get(i).length);
        out.write(all.get(i));
      }
      return bytes.toByteArray();
    }
  }

  /** Submits a job: the order of operator partitions in its output, then its stages. */
  public Job submit(byte[] specification) throws IOException {
    Long mark = leftovers.begin();
    Runnable ended = () -> leftovers.end(mark);
    try {
      return submit(new DataInputStream(new ByteArrayInputStream(specification)), ended);
    } catch (IOException | RuntimeException failed) {
      ended.run();
      throw failed;
    }
  }

  private Job submit(DataInputStream in, Runnable ended) throws IOException {
    Targets targets = new Targets(Stage.Task.ints(in));
    int stages = in.readInt();
    Reports reports = new Reports();
    context.register(reports);
    List<ShuffleDependency<Object, Object, Object>> own = new ArrayList<>();
    int[] shuffles = new int[stages];
    for (int s = 0; s < stages; s++) {
      List<Stage.Task> tasks = Stage.Task.readAll(in, shuffles, this::reduceIds);
      List<ShuffleDependency<Object, Object, Object>> parents = new ArrayList<>(own);
      Stage stage = new Stage(context, parents, tasks, reports, template);
      ShuffleDependency<Object, Object, Object> output = dependency(stage, targets);
      shuffles[s] = output.shuffleId();
      own.add(output);
      retained.put(output.shuffleId(), output);
    }
    return new Job(context.submitMapStage(own.get(stages - 1)), reports, shuffles, ended);
  }

  /**
   * Ends a job. Returns once the scheduler has let go of its stages: of a task that ends before that
   * it registers the output, and where the shuffle has been removed, the scheduler dies of it.
   */
  public void cancel(Job job, String reason) throws InterruptedException {
    job.action.cancel(Option.apply(reason));
    context.cancelJob(job.id, reason);
    job.await_(CANCEL_MILLIS_MAX);
    job.ended.run();
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
   * Executors that Spark counts and whose plugin has said hello: "id host silent-ms connected node"
   * lines.
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

  /** The reduce ids that some operator partitions, given as stretches, have in a shuffle. */
  private int[] reduceIds(int shuffle, int[] partitions) {
    ShuffleDependency<Object, Object, Object> known = retained.get(shuffle);
    // one that was removed cannot be read by any id
    return known == null ? partitions : ((Targets) known.partitioner()).stretches(partitions);
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
    private final int[] places;

    /** `order` has every partition once. */
    Targets(int[] order) {
      this.places = new int[order.length];
      for (int place = 0; place < order.length; place++) places[order[place]] = place;
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
