package rekindle;

import java.io.IOException;
import java.io.Serializable;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.SparkContext;
import org.apache.spark.SparkEnv;
import org.apache.spark.api.plugin.DriverPlugin;
import org.apache.spark.api.plugin.ExecutorPlugin;
import org.apache.spark.api.plugin.PluginContext;
import org.apache.spark.api.plugin.SparkPlugin;

/**
 * Starts the host together with its executor and tells the driver every second that it is there.
 *
 * <p>Spark's own heartbeats are too rare to notice a silent executor in time.
 */
public final class HostPlugin implements SparkPlugin {
  static final Map<String, Seen> SEEN = new ConcurrentHashMap<>();

  static final class Seen {
    final String host;
    final long at;

    Seen(String host, long at) {
      this.host = host;
      this.at = at;
    }
  }

  static final class Hello implements Serializable {
    final String executor;
    final String host;

    Hello(String executor, String host) {
      this.executor = executor;
      this.host = host;
    }
  }

  @Override
  public DriverPlugin driverPlugin() {
    return new DriverPlugin() {
      @Override
      public Object receive(Object message) {
        Hello hello = (Hello) message;
        SEEN.put(hello.executor, new Seen(hello.host, System.nanoTime()));
        return null;
      }
    };
  }

  @Override
  public ExecutorPlugin executorPlugin() {
    return new ExecutorPlugin() {
      @Override
      public void init(PluginContext context, Map<String, String> extra) {
        String python =
            context.conf().get("spark.pyspark.python", System.getenv().getOrDefault("PYSPARK_PYTHON", "python3"));
        try {
          HostProcess.start(python);
        } catch (IOException failed) {
          throw new IllegalStateException("cannot start the host with " + python, failed);
        }
        Thread heart = new Thread(() -> beat(context), "rekindle-heartbeat");
        heart.setDaemon(true);
        heart.start();
      }
    };
  }

  private static void beat(PluginContext context) {
    String host = SparkEnv.get().blockManager().blockManagerId().host();
    Hello hello = new Hello(context.executorID(), host);
    while (true) {
      try {
        context.send(hello);
      } catch (IOException unreachable) {
        continue; // the driver may be back within a beat; without it Spark ends this JVM
      } finally {
        java.util.concurrent.locks.LockSupport.parkNanos(1_000_000_000L);
      }
    }
  }
}
