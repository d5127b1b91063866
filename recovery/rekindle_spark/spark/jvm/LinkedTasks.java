package rekindle;

import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.spark.ShuffleDependency;
import org.apache.spark.SparkEnv;
import org.apache.spark.TaskContext$;
import org.apache.spark.TaskContextImpl;
import org.apache.spark.network.client.RpcResponseCallback;
import org.apache.spark.scheduler.MapStatus;
import scala.Option;
import scala.Tuple2;
import scala.reflect.ClassTag$;

/**
 * Runs the tasks of linked jobs on an executor: each as soon as the outputs that it reads are here.
 *
 * <p>A job may follow another one, with the same partitions in each task. Then a task also waits until
 * the host has run the one of the same stage: partitions run their epochs in order.
 *
 * <p>A task's output goes to the executors that read it in the same job, and into a shuffle file as
 * that of any other task: whoever reads it in a later job knows no difference. A task that fails
 * gives an output without blocks, and who reads it reports what is missing.
 */
final class LinkedTasks implements Links.Receiver {
  /**
   * Jobs of which outputs are here, and no task. No more are on their way at a time, so the tasks of
   * an older one will not come: the driver cannot reach this executor, nor say that it was cancelled.
   */
  static final int TASKLESS_MAX = 16;
  /** Jobs that are over here and of which messages may still come. */
  private static final int OVER_MAX = 1_000;
  /** Without a piece that is taken. */
  private static final long SEND_SECONDS_MAX = 15;
  private static final ByteBuffer NOTHING = ByteBuffer.allocate(0);

  private final ExecutorService workers =
      Executors.newCachedThreadPool(
          work -> {
            Thread thread = new Thread(work, "rekindle-linked-task");
            thread.setDaemon(true);
            return thread;
          });
  private final Map<Integer, Job> jobs = new HashMap<>();
  /** By job whether it was cancelled; else all its tasks here have ended. */
  private final Map<Integer, Boolean> over =
      new LinkedHashMap<>() {
        @Override
        protected boolean removeEldestEntry(Map.Entry<Integer, Boolean> eldest) {
          return size() > OVER_MAX;
        }
      };
  private volatile ShuffleDependency<?, ?, ?> template;
  private final Links links;

  /** Takes messages from now on. */
  LinkedTasks() {
    this.links = new Links(SparkEnv.get(), this);
  }

  private record Waiting(LinkedTask task, RpcResponseCallback answer) {}

  /**
   * What is here of a job: outputs, and tasks that wait. `ran` has the stages whose task here has been
   * run, `left` counts its tasks that have not ended, once one has come.
   */
  static final class Job {
    final JobOutputs outputs = new JobOutputs();
    final List<Waiting> waiting = new ArrayList<>();
    final Set<Integer> ran = new HashSet<>();
    int left = -1;
  }

  int port() {
    return links.port();
  }

  @Override
  public void receive(ByteBuffer message, RpcResponseCallback answer) {
    try {
      byte kind = message.get();
      if (kind == LinkedTask.RUN) {
        add(new Waiting(LinkedTask.read(message), answer));
      } else if (kind == LinkedTask.BLOCKS) {
        add(LinkedTask.readOutput(message));
        answer.onSuccess(NOTHING.duplicate());
      } else {
        cancel(LinkedTask.readCancelled(message));
        answer.onSuccess(NOTHING.duplicate());
      }
    } catch (IOException | ClassNotFoundException | RuntimeException failed) {
      answer.onFailure(failed);
    }
  }

  private synchronized void add(Waiting one) {
    LinkedTask task = one.task();
    if (over.containsKey(task.job)) {
      one.answer().onFailure(new IOException("the job is over"));
      return;
    }
    Job job = jobs.computeIfAbsent(task.job, id -> new Job());
    if (job.left < 0) job.left = task.tasksHere;
    job.waiting.add(one);
    startReady(job);
  }

  private synchronized void add(LinkedTask.Output output) {
    if (over.containsKey(output.job())) return;
    Job job = jobs.computeIfAbsent(output.job(), id -> new Job());
    job.outputs.add(output);
    for (int gone : removeTaskless(jobs)) over.put(gone, true);
    if (output.isLast()) startReady(job);
  }

  /** Removes jobs whose tasks will not come; returns them. */
  static List<Integer> removeTaskless(Map<Integer, Job> jobs) {
    List<Integer> taskless =
        jobs.keySet().stream().filter(id -> jobs.get(id).left < 0).sorted().toList();
    List<Integer> gone = taskless.subList(0, Math.max(0, taskless.size() - TASKLESS_MAX));
    jobs.keySet().removeAll(gone);
    return gone;
  }

  private synchronized void cancel(int[] shuffles) {
    over.put(shuffles[0], true);
    for (int shuffle : shuffles) remove(shuffle);
    Job job = jobs.remove(shuffles[0]);
    for (Waiting one : job == null ? List.<Waiting>of() : job.waiting) {
      one.answer().onFailure(new IOException("the job was cancelled"));
    }
    for (Job other : jobs.values()) startReady(other);
  }

  private void startReady(Job job) {
    for (Iterator<Waiting> left = job.waiting.iterator(); left.hasNext(); ) {
      Waiting one = left.next();
      Turn turn = turn(one.task());
      if (turn == Turn.NEVER) {
        left.remove();
        one.answer().onFailure(new IOException("the job that it follows was cancelled"));
      }
      if (turn != Turn.NOW) continue;
      List<byte[]> sent = sent(job, one.task());
      if (sent == null) continue;
      left.remove();
      workers.execute(() -> run(job, one, sent));
    }
  }

  private Turn turn(LinkedTask task) {
    Job before = jobs.get(task.after);
    return Turn.of(
        task.stage(), before == null ? null : before.ran, wasCancelled(task.after));
  }

  /** The host has run a task, or it has failed: what follows it may go on. */
  private synchronized void ran(LinkedTask task, Job job) {
    if (!job.ran.add(task.stage())) return;
    for (Job other : jobs.values()) startReady(other);
  }

  /** The blocks for a task of outputs in its own job; null as long as an output is not here. */
  private static List<byte[]> sent(Job job, LinkedTask task) {
    List<byte[]> found = new ArrayList<>();
    for (Stage.Read read : task.task.reads) {
      if (!task.isOwn(read.shuffle)) continue;
      List<byte[]> blocks = job.outputs.blocks(read.shuffle, read.maps, read.reduces);
      if (blocks == null) return null;
      found.addAll(blocks);
    }
    return found;
  }

  private void run(Job job, Waiting one, List<byte[]> sent) {
    LinkedTask task = one.task();
    try {
      HostProcess.Answer answer = Stage.answer(task.task, () -> blocks(task, sent));
      ran(task, job);
      Exchange.Targets targets = new Exchange.Targets(task.order);
      Map<Integer, Tuple2<Integer, byte[]>> blocks = new TreeMap<>();
      for (int i = 0; i < answer.targets.length; i++) {
        int place = targets.getPartition(answer.targets[i]);
        blocks.put(place, new Tuple2<>(answer.targets[i], answer.blocks[i]));
      }
      List<LinkedTask.Output> outputs = outputs(task, blocks);
      List<Sending> sendings = send(task, outputs);
      MapStatus status = BlockWriter.write(blocks, task.shuffle, targets.numPartitions(), task.task.index);
      List<byte[]> reports = new ArrayList<>(List.of(answer.report));
      for (Sending sending : sendings) {
        String failure = sending.failure();
        if (failure.isEmpty()) continue;
        List<String> here = List.of(task.task.executor);
        reports.add(Stage.unreadable(sending.reader.executor(), failure, here, sending.seconds()));
      }
      if (wasCancelled(task.job)) remove(task.shuffle);
      one.answer().onSuccess(ByteBuffer.wrap(answer(reports, outputs, status)));
    } catch (Throwable failed) {
      one.answer().onFailure(failed);
    } finally {
      ran(task, job);
      ended(task.job, job);
    }
  }

  /** All input of a task: what was sent, and what it reads of earlier jobs. */
  private List<byte[]> blocks(LinkedTask task, List<byte[]> sent) throws Blocks.Unreadable {
    List<Stage.Read> kept = new ArrayList<>();
    for (Stage.Read read : task.task.reads) if (!task.isOwn(read.shuffle)) kept.add(read);
    if (kept.isEmpty()) return sent;
    if (template == null) template = deserialized(task.template);
    TaskContextImpl context = TaskContext$.MODULE$.empty();
    try {
      List<byte[]> all = new ArrayList<>(Blocks.read(kept.toArray(new Stage.Read[0]), template, context));
      all.addAll(sent);
      return all;
    } finally {
      context.markTaskCompleted(Option.empty()); // frees what was fetched and not taken
    }
  }

  /** Removes what this executor has written of a shuffle. */
  private static void remove(int shuffle) {
    SparkEnv.get().blockingShuffleManager().unregisterShuffle(shuffle);
  }

  private static ShuffleDependency<?, ?, ?> deserialized(byte[] template) {
    return SparkEnv.get()
        .closureSerializer()
        .newInstance()
        .deserialize(
            ByteBuffer.wrap(template),
            LinkedTasks.class.getClassLoader(),
            ClassTag$.MODULE$.apply(ShuffleDependency.class));
  }

  /** What each reader gets of an output. */
  private static List<LinkedTask.Output> outputs(
      LinkedTask task, Map<Integer, Tuple2<Integer, byte[]>> blocks) {
    List<LinkedTask.Output> outputs = new ArrayList<>();
    for (LinkedTask.Reader reader : task.readers) {
      List<LinkedTask.Block> found = new ArrayList<>();
      blocks.forEach(
          (place, block) -> {
            if (JobOutputs.isAmong(place, reader.reduces())) found.add(new LinkedTask.Block(place, block._2()));
          });
      outputs.add(new LinkedTask.Output(task.job, task.shuffle, task.task.index, true, found));
    }
    return outputs;
  }

  /** Sends each reader its output, in pieces that are not much larger than one block. */
  private List<Sending> send(LinkedTask task, List<LinkedTask.Output> outputs) throws IOException {
    List<Sending> sendings = new ArrayList<>();
    for (int i = 0; i < outputs.size(); i++) {
      LinkedTask.Reader reader = task.readers.get(i);
      LinkedTask.Output output = outputs.get(i);
      if (reader.executor().equals(task.task.executor)) {
        add(output);
      } else {
        sendings.add(new Sending(reader, output));
      }
    }
    return sendings;
  }

  /** An output on its way to a reader. */
  private final class Sending implements RpcResponseCallback {
    final LinkedTask.Reader reader;
    private final long began = System.nanoTime();
    private final CompletableFuture<String> end = new CompletableFuture<>();
    private final AtomicInteger left;

    Sending(LinkedTask.Reader reader, LinkedTask.Output output) throws IOException {
      this.reader = reader;
      List<LinkedTask.Output> pieces = output.pieces();
      this.left = new AtomicInteger(pieces.size());
      for (LinkedTask.Output piece : pieces) {
        links.send(reader.place(), LinkedTask.message(piece), this);
      }
    }

    @Override
    public void onSuccess(ByteBuffer nothing) {
      if (left.decrementAndGet() == 0) end.complete("");
    }

    @Override
    public void onFailure(Throwable failed) {
      end.complete(failed.getClass().getSimpleName() + ": " + failed.getMessage());
    }

    /** Why the reader has not taken all; empty when it has. It waits as long as pieces are taken. */
    String failure() throws InterruptedException, ExecutionException {
      int seen = left.get();
      while (true) {
        try {
          return end.get(SEND_SECONDS_MAX, TimeUnit.SECONDS);
        } catch (TimeoutException slow) {
          if (left.get() == seen) return "took nothing for " + SEND_SECONDS_MAX + " s";
          seen = left.get();
        }
      }
    }

    double seconds() {
      return (System.nanoTime() - began) / 1e9;
    }
  }

  /**
   * Reports: their count, then length and bytes of each; then how many bytes each reader has got, and
   * the map status.
   */
  private static byte[] answer(List<byte[]> reports, List<LinkedTask.Output> outputs, MapStatus status)
      throws IOException {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    DataOutputStream out = new DataOutputStream(bytes);
    out.writeInt(reports.size());
    for (byte[] report : reports) {
      out.writeInt(report.length);
      out.write(report);
    }
    for (LinkedTask.Output output : outputs) out.writeLong(output.bytes());
    ByteBuffer registered =
        SparkEnv.get()
            .closureSerializer()
            .newInstance()
            .serialize(status, ClassTag$.MODULE$.apply(MapStatus.class));
    byte[] registration = new byte[registered.remaining()];
    registered.get(registration);
    out.write(registration);
    return bytes.toByteArray();
  }

  private synchronized boolean wasCancelled(int job) {
    return Boolean.TRUE.equals(over.get(job));
  }

  private synchronized void ended(int id, Job job) {
    job.left--;
    if (job.left == 0 && jobs.remove(id, job)) over.put(id, false);
  }
}
