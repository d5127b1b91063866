package rekindle;

import java.io.IOException;
import java.io.Serializable;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.locks.LockSupport;
import org.apache.logging.log4j.Level;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.core.config.Configurator;
import org.apache.spark.SparkContext;
import org.apache.spark.SparkEnv;
import org.apache.spark.api.plugin.DriverPlugin;
import org.apache.spark.api.plugin.ExecutorPlugin;
import org.apache.spark.api.plugin.PluginContext;
import org.apache.spark.api.plugin.SparkPlugin;

/**
 * Starts the host together with its executor and tells the driver every second that it is there.
 *
 * <p>Spark's own heartbeats are too rare to notice a silent executor in time. The driver answers
 * whether the executor still counts: one that was dropped while it was silent ends itself when it
 * wakes up, and its worker has room for a new one.
 *
 * <p>Why: docs/decisions/0011-the-host-starts-with-its-executor.md.
 */
public final class HostPlugin implements SparkPlugin {
  /** Whether executors take linked jobs. */
  private static final String LINKED = "spark.rekindle.links";

  static final Map<String, Seen> SEEN = new ConcurrentHashMap<>();
  static final Set<String> DROPPED = ConcurrentHashMap.newKeySet();

  static final class Seen {
    final Hello hello;
    final long at;

    Seen(Hello hello, long at) {
      this.hello = hello;
      this.at = at;
    }
  }

  /**
   * `node` is what the cluster calls the executor's node; empty when nobody has said it. `signs` say
   * what the executor has done, for the driver to see that it goes on. `linkPort` is where it takes
   * messages of linked jobs, 0 where it takes none. `waiting` is what waits on its links
   * (`LinkedTasks`).
   */
  static final class Hello implements Serializable {
    final String executor;
    final String host;
    final String node;
    final byte[] signs;
    final int linkPort;
    final String waiting;

    Hello(String executor, String host, String node, byte[] signs, int linkPort, String waiting) {
      this.executor = executor;
      this.host = host;
      this.node = node;
      this.signs = signs;
      this.linkPort = linkPort;
      this.waiting = waiting;
    }
  }

  @Override
  public DriverPlugin driverPlugin() {
    return new DriverPlugin() {
      @Override
      public Object receive(Object message) {
        Hello hello = (Hello) message;
        if (DROPPED.contains(hello.executor)) return false;
        SEEN.put(hello.executor, new Seen(hello, System.nanoTime()));
        return true;
      }
    };
  }

  @Override
  public ExecutorPlugin executorPlugin() {
    return new ExecutorPlugin() {
      @Override
      public void init(PluginContext context, Map<String, String> extra) {
        quieten();
        String python =
            context.conf().get("spark.pyspark.python", System.getenv().getOrDefault("PYSPARK_PYTHON", "python3"));
        try {
          HostProcess.start(python);
        } catch (IOException failed) {
          throw new IllegalStateException("cannot start the host with " + python, failed);
        }
        LinkedTasks linked = context.conf().getBoolean(LINKED, false) ? linked() : null;
        Thread heart = new Thread(() -> beat(context, linked), "rekindle-heartbeat");
        heart.setDaemon(true);
        heart.start();
      }
    };
  }

  /**
   * Leaves out what Spark logs of each task, a dozen lines of it: on a small node a sixth of the
   * JVM's CPU. A configuration that asks for more, or for less, than Spark's own has its way.
   */
  private static void quieten() {
    if (LogManager.getRootLogger().getLevel() == Level.INFO) Configurator.setRootLevel(Level.WARN);
  }

  /** What takes linked jobs; null where there is no port for it: then jobs are Spark's. */
  private static LinkedTasks linked() {
    try {
      return new LinkedTasks();
    } catch (Exception | LinkageError taken) {
      LogManager.getLogger(HostPlugin.class).warn("no port for links, jobs are Spark's", taken);
      return null;
    }
  }

  private static void beat(PluginContext context, LinkedTasks linked) {
    String host = SparkEnv.get().blockManager().blockManagerId().host();
    String node = System.getenv().getOrDefault("REKINDLE_NODE", "").strip();
    int port = linked == null ? 0 : linked.port();
    while (true) {
      try {
        String waiting = linked == null ? "" : linked.waiting();
        Hello hello = new Hello(context.executorID(), host, node, HostProcess.signs(), port, waiting);
        // 0: Spark's master counts any other end against the application
        if (context.ask(hello).equals(false)) System.exit(0);
      } catch (Exception unreachable) {
        continue; // the driver may be back within a beat; without it Spark ends this JVM
      } finally {
        LockSupport.parkNanos(1_000_000_000L);
      }
    }
  }
}
