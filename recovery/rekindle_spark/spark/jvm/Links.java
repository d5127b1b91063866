package rekindle;

import java.io.Closeable;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.spark.SecurityManager;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkEnv;
import org.apache.spark.network.TransportContext;
import org.apache.spark.network.client.RpcResponseCallback;
import org.apache.spark.network.client.TransportClient;
import org.apache.spark.network.client.TransportClientBootstrap;
import org.apache.spark.network.client.TransportClientFactory;
import org.apache.spark.network.crypto.AuthClientBootstrap;
import org.apache.spark.network.crypto.AuthServerBootstrap;
import org.apache.spark.network.netty.SparkTransportConf;
import org.apache.spark.network.server.OneForOneStreamManager;
import org.apache.spark.network.server.RpcHandler;
import org.apache.spark.network.server.StreamManager;
import org.apache.spark.network.server.TransportServer;
import org.apache.spark.network.server.TransportServerBootstrap;
import org.apache.spark.network.util.TransportConf;
import scala.Option;

/**
 * Connections from the driver to executors, and between executors, for messages of linked jobs.
 *
 * <p>They are made by Spark's own network library, on a port of their own, with the authentication
 * and encryption of Spark's other connections. Messages to one place arrive in the order in which they are sent.
 *
 * <p>Why: docs/decisions/0057-epochs-over-links.md.
 */
final class Links implements Closeable {
  /** Where a link can be made to. */
  record Place(String host, int port) implements java.io.Serializable {}

  /** Takes messages; it is called by a thread of the network, which it must not hold up. */
  interface Receiver {
    void receive(ByteBuffer message, RpcResponseCallback answer);
  }

  /** Spark's settings of these connections are `spark.rekindle.links.io.*`. */
  private static final String MODULE = "rekindle.links";
  private static final long IDLE_SECONDS = 10;
  private static final String PORT = "spark.rekindle.links.port";

  private final TransportContext context;
  private final TransportClientFactory clients;
  private final TransportServer server;
  private final Map<Place, ExecutorService> senders = new ConcurrentHashMap<>();

  /** Without a receiver there is no port: the driver only asks. */
  Links(SparkEnv env, Receiver receiver) {
    this(env.conf(), env.securityManager(), env.blockManager().blockManagerId().host(), receiver);
  }

  /** The receiver's port is one of this `host`. */
  Links(SparkConf conf, SecurityManager security, String host, Receiver receiver) {
    Option<org.apache.spark.SSLOptions> encryption =
        security.isSslRpcEnabled() ? Option.apply(security.getRpcSSLOptions()) : Option.empty();
    TransportConf transport =
        SparkTransportConf.fromSparkConf(conf, MODULE, 1, Option.empty(), encryption);
    this.context = new TransportContext(transport, new Handler(receiver), true);
    boolean secret = security.isAuthenticationEnabled();
    List<TransportClientBootstrap> asking =
        secret ? List.of(new AuthClientBootstrap(transport, conf.getAppId(), security)) : List.of();
    this.clients = context.createClientFactory(asking);
    if (receiver == null) {
      this.server = null;
    } else {
      List<TransportServerBootstrap> asked =
          secret ? List.of(new AuthServerBootstrap(transport, security)) : List.of();
      this.server = context.createServer(host, conf.getInt(PORT, 0), asked);
    }
  }

  int port() {
    return server.getPort();
  }

  /**
   * Sends a message; `told` is called once. The first message to a place waits for a connection,
   * and the others to this place for the first, but the caller for none.
   */
  void send(Place place, byte[] message, RpcResponseCallback told) {
    RpcResponseCallback answer = new Once(told);
    senders
        .computeIfAbsent(place, Links::sender)
        .execute(
            () -> {
              try {
                TransportClient client = clients.createClient(place.host(), place.port());
                client.sendRpc(ByteBuffer.wrap(message), answer);
              } catch (IOException | RuntimeException failed) {
                answer.onFailure(failed);
              } catch (InterruptedException closed) {
                Thread.currentThread().interrupt();
                answer.onFailure(closed);
              }
            });
  }

  @Override
  public void close() {
    senders.values().forEach(ExecutorService::shutdownNow);
    clients.close();
    if (server != null) server.close();
    context.close();
  }

  /** One thread, while there is something to send: a lost executor has no use for one. */
  private static ExecutorService sender(Place place) {
    ThreadPoolExecutor sender =
        new ThreadPoolExecutor(
            1,
            1,
            IDLE_SECONDS,
            TimeUnit.SECONDS,
            new LinkedBlockingQueue<>(),
            work -> {
              Thread thread = new Thread(work, "rekindle-link-" + place.host());
              thread.setDaemon(true);
              return thread;
            });
    sender.allowCoreThreadTimeOut(true);
    return sender;
  }

  /**
   * Passes the first call on. Of a connection that breaks while messages wait to be written Spark says
   * twice that one of these has failed.
   */
  private static final class Once implements RpcResponseCallback {
    private final AtomicBoolean isCalled = new AtomicBoolean();
    private final RpcResponseCallback answer;

    Once(RpcResponseCallback answer) {
      this.answer = answer;
    }

    @Override
    public void onSuccess(ByteBuffer content) {
      if (!isCalled.getAndSet(true)) answer.onSuccess(content);
    }

    @Override
    public void onFailure(Throwable failed) {
      if (!isCalled.getAndSet(true)) answer.onFailure(failed);
    }
  }

  private static final class Handler extends RpcHandler {
    private final Receiver receiver;
    private final StreamManager streams = new OneForOneStreamManager();

    Handler(Receiver receiver) {
      this.receiver = receiver;
    }

    @Override
    public void receive(TransportClient client, ByteBuffer message, RpcResponseCallback answer) {
      if (receiver == null) {
        answer.onFailure(new IOException("nothing is asked of the driver"));
      } else {
        receiver.receive(message, answer);
      }
    }

    @Override
    public StreamManager getStreamManager() {
      return streams;
    }
  }
}
