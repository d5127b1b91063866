package rekindle;

import java.lang.reflect.Field;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkContext;
import org.apache.spark.broadcast.Broadcast;
import org.apache.spark.broadcast.BroadcastFactory;
import org.apache.spark.broadcast.BroadcastManager;
import scala.reflect.ClassTag;

/**
 * Lets tasks carry what Spark would broadcast to them: the code of their stage, some kilobytes and
 * four bytes for each operator partition, fewer than what a task already says of those it runs.
 *
 * <p>By default each executor asks the driver who has it, gets it from the driver or another
 * executor, keeps it as a block and tells the driver so. A stage of Rekindle has one task on an
 * executor, so that is work for one use; it was a third of what a task costs the executor's JVM. And
 * a read from a machine that has just died held survivors up.
 *
 * <p>Why: docs/decisions/0046-rekindle-removes-shuffles-itself.md.
 */
final class CarriedBroadcasts implements BroadcastFactory {
  private final BroadcastFactory others;

  private CarriedBroadcasts(BroadcastFactory others) {
    this.others = others;
  }

  /** From here on, for all that this driver broadcasts; there is no public way to choose. */
  static void install(SparkContext context) {
    BroadcastManager manager = context.env().broadcastManager();
    try {
      Field factory = BroadcastManager.class.getDeclaredField("broadcastFactory");
      factory.setAccessible(true);
      factory.set(manager, new CarriedBroadcasts((BroadcastFactory) factory.get(manager)));
    } catch (ReflectiveOperationException other) {
      throw new IllegalStateException("not the Spark that this was compiled for", other);
    }
  }

  /** Goes along with whoever refers to it. */
  private static final class Carried<T> extends Broadcast<T> {
    private final T value;

    Carried(long id, T value, ClassTag<T> tag) {
      super(id, tag);
      this.value = value;
    }

    @Override
    public T getValue() {
      return value;
    }

    @Override
    public void doUnpersist(boolean blocking) {}

    @Override
    public void doDestroy(boolean blocking) {}
  }

  @Override
  public <T> Broadcast<T> newBroadcast(
      T value, boolean isLocal, long id, boolean serializedOnly, ClassTag<T> tag) {
    if (value instanceof byte[]) return new Carried<>(id, value, tag);
    return others.newBroadcast(value, isLocal, id, serializedOnly, tag);
  }

  @Override
  public void unbroadcast(long id, boolean removeFromDriver, boolean blocking) {
    others.unbroadcast(id, removeFromDriver, blocking);
  }

  @Override
  public void initialize(boolean isDriver, SparkConf conf) {}

  @Override
  public void stop() {
    others.stop();
  }
}
