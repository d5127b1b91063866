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
import java.util.concurrent.ConcurrentHashMap;
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
import org.apache.spark.storage.BlockManagerId;
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
 *
 * <p>A reader that still holds much of what this executor sent is sent nothing but where the output
 * is: it reads the file once it comes to it (`LinkCredit`). So nobody waits for a slow reader but those
 * that read from it, and neither end keeps more in memory than its tasks work on and links may hold.
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
  /** How much an executor may hold of what another one has sent, or it itself, in bytes. */
  private static final String HELD = "spark.rekindle.links.bytesMax";
  private static final long HELD_BYTES_MAX = 16L << 20;
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
  /** By reader what it may be sent. */
  private final Map<String, LinkCredit> credits = new ConcurrentHashMap<>();
  private final String own = SparkEnv.get().executorId();
  private final long heldBytesMax;
  private final Links links;

  /** Takes messages from now on. */
  LinkedTasks() {
    this.heldBytesMax = SparkEnv.get().conf().getLong(HELD, HELD_BYTES_MAX);
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
        LinkedTask.Output output = LinkedTask.readOutput(message);
        answer.onSuccess(ByteBuffer.allocate(Long.BYTES).putLong(0, add(output)));
      } else if (kind == LinkedTask.STORED) {
        LinkedTask.Stored stored = LinkedTask.readStored(message);
        answer.onSuccess(ByteBuffer.allocate(Long.BYTES).putLong(0, add(stored)));
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

  /** Returns how much more of the sender's outputs this executor has room for. */
  private synchronized long add(LinkedTask.Output output) {
    if (!over.containsKey(output.job())) {
      Job job = jobs.computeIfAbsent(output.job(), id -> new Job());
      job.outputs.add(output);
      arrived(job, output.isLast());
    }
    return roomBytes(output.from());
  }

  private synchronized long add(LinkedTask.Stored stored) {
    if (!over.containsKey(stored.job())) {
      Job job = jobs.computeIfAbsent(stored.job(), id -> new Job());
      job.outputs.add(stored);
      arrived(job, true);
    }
    return roomBytes(stored.from());
  }

  private void arrived(Job job, boolean isWhole) {
    for (int gone : removeTaskless(jobs)) over.put(gone, true);
    if (isWhole) startReady(job);
  }

  private long roomBytes(String from) {
    long held = jobs.values().stream().mapToLong(job -> job.outputs.heldBytes(from)).sum();
    return Math.max(0, heldBytesMax - held);
  }

  /** Adds an output of this executor for itself, if there is room for it. */
  private synchronized boolean addOwn(LinkedTask.Output output) {
    if (output.bytes() > 0 && output.bytes() > roomBytes(own)) return false;
    add(output);
    return true;
  }

  /**
   * What waits on links: "producer reader sent stored refusals" lines. The producer says which bytes
   * were sent and not answered, and how many outputs in a row credit did not cover; the reader says which
   * bytes wait for it in files.
   */
  synchronized String waiting() {
    Map<String, Long> stored = new TreeMap<>();
    for (Job job : jobs.values()) {
      job.outputs.storedBytes().forEach((from, bytes) -> stored.merge(from, bytes, Long::sum));
    }
    StringBuilder lines = new StringBuilder();
    credits.forEach(
        (reader, credit) -> {
          long sent = credit.bytesOnTheirWay();
          long refusals = credit.refusals();
          if (sent > 0 || refusals > 0) lines.append(line(own, reader, sent, 0, refusals));
        });
    stored.forEach(
        (from, bytes) -> {
          if (bytes > 0) lines.append(line(from, own, 0, bytes, 0));
        });
    return lines.toString();
  }

  private static String line(String producer, String reader, long sent, long stored, long refusals) {
    return producer + ' ' + reader + ' ' + sent + ' ' + stored + ' ' + refusals + '\n';
  }

  /** Removes jobs whose tasks will not come; returns them. */
  static List<Integer> removeTaskless(Map<Integer, Job> jobs) {
    List<Integer> taskless =
        jobs.keySet().stream().filter(id -> jobs.get(id).left < 0).sorted().toList();
    List<Integer> gone = taskless.subList(0, Math.max(0, taskless.size() - TASKLESS_MAX));
    jobs.keySet().removeAll(gone);
    return gone;
  }

  /** Files go without the lock: on a disk that hangs the executor still says that it is there. */
  private void cancel(int[] shuffles) {
    giveUp(shuffles[0]);
    for (int shuffle : shuffles) remove(shuffle);
  }

  private synchronized void giveUp(int id) {
    over.put(id, true);
    Job job = jobs.remove(id);
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
      JobOutputs.Found sent = sent(job, one.task());
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

  /** What is for a task of outputs in its own job; null as long as an output is not here. */
  private static JobOutputs.Found sent(Job job, LinkedTask task) {
    JobOutputs.Found found = new JobOutputs.Found(new ArrayList<>(), new ArrayList<>());
    for (Stage.Read read : task.task.reads) {
      if (!task.isOwn(read.shuffle)) continue;
      JobOutputs.Found one = job.outputs.find(read.shuffle, read.maps, read.reduces);
      if (one == null) return null;
      found.blocks().addAll(one.blocks());
      found.stored().addAll(one.stored());
    }
    return found;
  }

  private void run(Job job, Waiting one, JobOutputs.Found sent) {
    LinkedTask task = one.task();
    try {
      Delivery delivery = deliver(task, job, sent);
      List<byte[]> reports = new ArrayList<>(List.of(delivery.report));
      for (Sending sending : delivery.sendings) {
        String failure = sending.failure();
        if (failure.isEmpty()) continue;
        List<String> here = List.of(own);
        reports.add(Stage.unreadable(sending.reader.executor(), failure, here, sending.seconds()));
      }
      if (wasCancelled(task.job)) remove(task.shuffle);
      one.answer().onSuccess(ByteBuffer.wrap(answer(reports, delivery)));
    } catch (Throwable failed) {
      one.answer().onFailure(failed);
    } finally {
      ran(task, job);
      ended(task, job);
    }
  }

  /** What has become of a task's output; by reader how many bytes of it were sent. */
  private record Delivery(byte[] report, List<Sending> sendings, long[] sentBytes, MapStatus status) {}

  /** Runs a task, sends its output and writes it. Frames that are not sent are in the file alone. */
  private Delivery deliver(LinkedTask task, Job job, JobOutputs.Found sent) throws IOException {
    HostProcess.Answer answer = Stage.answer(task.task, () -> blocks(task, sent));
    ran(task, job);
    Exchange.Targets targets = new Exchange.Targets(task.order);
    Map<Integer, Tuple2<Integer, byte[]>> blocks = new TreeMap<>();
    for (int i = 0; i < answer.targets.length; i++) {
      int place = targets.getPartition(answer.targets[i]);
      blocks.put(place, new Tuple2<>(answer.targets[i], answer.blocks[i]));
    }
    List<LinkedTask.Output> outputs = outputs(task, blocks);
    List<Sending> sendings = new ArrayList<>();
    boolean[] isSent = send(task, outputs, sendings);
    MapStatus status = BlockWriter.write(blocks, task.shuffle, targets.numPartitions(), task.task.index);
    sendings.addAll(sayWhere(task, outputs, isSent, status.location()));
    long[] sentBytes = new long[isSent.length];
    for (int i = 0; i < isSent.length; i++) sentBytes[i] = isSent[i] ? outputs.get(i).bytes() : 0;
    return new Delivery(answer.report, sendings, sentBytes, status);
  }

  /** All input of a task: what was sent, what waits in files, and what it reads of earlier jobs. */
  private List<byte[]> blocks(LinkedTask task, JobOutputs.Found sent) throws Blocks.Unreadable {
    List<Stage.Read> kept = new ArrayList<>();
    for (Stage.Read read : task.task.reads) if (!task.isOwn(read.shuffle)) kept.add(read);
    if (kept.isEmpty() && sent.stored().isEmpty()) return sent.blocks();
    if (template == null) template = deserialized(task.template);
    TaskContextImpl context = TaskContext$.MODULE$.empty();
    try {
      Stage.Read[] reads = kept.toArray(new Stage.Read[0]);
      List<byte[]> all = new ArrayList<>(Blocks.read(reads, sent.stored(), template, context));
      all.addAll(sent.blocks());
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
  private List<LinkedTask.Output> outputs(
      LinkedTask task, Map<Integer, Tuple2<Integer, byte[]>> blocks) {
    List<LinkedTask.Output> outputs = new ArrayList<>();
    for (LinkedTask.Reader reader : task.readers) {
      List<LinkedTask.Block> found = new ArrayList<>();
      blocks.forEach(
          (place, block) -> {
            if (JobOutputs.isAmong(place, reader.reduces())) found.add(new LinkedTask.Block(place, block._2()));
          });
      outputs.add(new LinkedTask.Output(own, task.job, task.shuffle, task.task.index, true, found));
    }
    return outputs;
  }

  /**
   * Sends each reader its output, in pieces that are not much larger than one block, as far as credit
   * covers it as a whole. Returns whether it does, by reader.
   */
  private boolean[] send(LinkedTask task, List<LinkedTask.Output> outputs, List<Sending> sendings)
      throws IOException {
    boolean[] isSent = new boolean[outputs.size()];
    for (int i = 0; i < isSent.length; i++) {
      LinkedTask.Reader reader = task.readers.get(i);
      LinkedTask.Output output = outputs.get(i);
      if (reader.executor().equals(own)) {
        isSent[i] = addOwn(output);
        continue;
      }
      LinkCredit credit = credit(reader);
      isSent[i] = credit.take(output.bytes());
      if (!isSent[i]) continue;
      List<Message> messages = new ArrayList<>();
      for (LinkedTask.Output piece : output.pieces()) {
        messages.add(new Message(LinkedTask.message(piece), piece.bytes()));
      }
      sendings.add(new Sending(reader, credit, messages));
    }
    return isSent;
  }

  /** Says to the readers of what was not sent where it is, once it is in a file there. */
  private List<Sending> sayWhere(
      LinkedTask task, List<LinkedTask.Output> outputs, boolean[] isSent, BlockManagerId at)
      throws IOException {
    List<Sending> sendings = new ArrayList<>();
    for (int i = 0; i < isSent.length; i++) {
      if (isSent[i]) continue;
      LinkedTask.Reader reader = task.readers.get(i);
      LinkedTask.Stored stored = outputs.get(i).stored(at.host(), at.port());
      if (reader.executor().equals(own)) {
        add(stored);
      } else {
        List<Message> messages = List.of(new Message(LinkedTask.message(stored), 0));
        sendings.add(new Sending(reader, credit(reader), messages));
      }
    }
    return sendings;
  }

  private LinkCredit credit(LinkedTask.Reader reader) {
    return credits.computeIfAbsent(reader.executor(), name -> new LinkCredit(heldBytesMax));
  }

  /** A message, and how many bytes of blocks it has. */
  private record Message(byte[] content, long bytes) {}

  /** An output on its way to a reader, or where it is. */
  private final class Sending {
    final LinkedTask.Reader reader;
    private final LinkCredit credit;
    private final long began = System.nanoTime();
    private final CompletableFuture<String> end = new CompletableFuture<>();
    private final AtomicInteger left;

    Sending(LinkedTask.Reader reader, LinkCredit credit, List<Message> messages) {
      this.reader = reader;
      this.credit = credit;
      this.left = new AtomicInteger(messages.size());
      for (Message message : messages) links.send(reader.place(), message.content(), new Taken(message.bytes()));
    }

    /** What becomes of one message. */
    private final class Taken implements RpcResponseCallback {
      private final long bytes;

      Taken(long bytes) {
        this.bytes = bytes;
      }

      @Override
      public void onSuccess(ByteBuffer roomBytes) {
        credit.answered(bytes, roomBytes.getLong());
        if (left.decrementAndGet() == 0) end.complete("");
      }

      @Override
      public void onFailure(Throwable failed) {
        credit.failed(bytes);
        end.complete(failed.getClass().getSimpleName() + ": " + failed.getMessage());
      }
    }

    /**
     * Why the reader has not taken all; empty when it has. It waits as long as the reader answers: what
     * was sent to it before comes first.
     */
    String failure() throws InterruptedException, ExecutionException {
      long seen = credit.answers();
      while (true) {
        try {
          return end.get(SEND_SECONDS_MAX, TimeUnit.SECONDS);
        } catch (TimeoutException slow) {
          if (credit.answers() == seen) return "took nothing for " + SEND_SECONDS_MAX + " s";
          seen = credit.answers();
        }
      }
    }

    double seconds() {
      return (System.nanoTime() - began) / 1e9;
    }
  }

  /**
   * Reports: their count, then length and bytes of each; then how many bytes each reader was sent, and
   * the map status.
   */
  private static byte[] answer(List<byte[]> reports, Delivery delivery) throws IOException {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    DataOutputStream out = new DataOutputStream(bytes);
    out.writeInt(reports.size());
    for (byte[] report : reports) {
      out.writeInt(report.length);
      out.write(report);
    }
    for (long sent : delivery.sentBytes) out.writeLong(sent);
    ByteBuffer registered =
        SparkEnv.get()
            .closureSerializer()
            .newInstance()
            .serialize(delivery.status, ClassTag$.MODULE$.apply(MapStatus.class));
    byte[] registration = new byte[registered.remaining()];
    registered.get(registration);
    out.write(registration);
    return bytes.toByteArray();
  }

  private synchronized boolean wasCancelled(int job) {
    return Boolean.TRUE.equals(over.get(job));
  }

  private synchronized void ended(LinkedTask task, Job job) {
    for (Stage.Read read : task.task.reads) {
      if (task.isOwn(read.shuffle)) job.outputs.release(read.shuffle, read.maps, read.reduces);
    }
    job.left--;
    if (job.left == 0 && jobs.remove(task.job, job)) over.put(task.job, false);
  }
}
