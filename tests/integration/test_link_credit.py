"""How much a reader has others send it, and what messages between executors say."""

import subprocess
from pathlib import Path

import java_probe

CREDIT = """
package rekindle;

public final class Probe {
  private static final LinkCredit CREDIT = new LinkCredit(100);

  private static void print(String what) {
    System.out.println(what + " " + CREDIT.bytesOnTheirWay() + " " + CREDIT.refusals());
  }

  public static void main(String[] arguments) {
    print("60:" + CREDIT.take(60));
    print("50:" + CREDIT.take(50));
    print("40:" + CREDIT.take(40));
    print("0:" + CREDIT.take(0));
    print("1:" + CREDIT.take(1));
    CREDIT.answered(60, 40);
    print("1:" + CREDIT.take(1));
    CREDIT.answered(40, 0);
    print("1:" + CREDIT.take(1));
    CREDIT.answered(0, 70);
    print("70:" + CREDIT.take(70));
    CREDIT.failed(70);
    print("70:" + CREDIT.take(70));
    CREDIT.failed(70);
    CREDIT.answered(0, 30);
    print("31:" + CREDIT.take(31));
    print("answers:" + CREDIT.answers());
  }
}
"""

MESSAGES = """
package rekindle;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.List;

public final class Probe {
  public static void main(String[] arguments) throws IOException {
    List<LinkedTask.Block> blocks =
        List.of(
            new LinkedTask.Block(4, new byte[] {1, 2}), new LinkedTask.Block(9, new byte[] {3}));
    LinkedTask.Output output = new LinkedTask.Output("3", 5, 7, 2, true, blocks);
    byte[] sent = LinkedTask.message(output);
    LinkedTask.Output read = LinkedTask.readOutput(content(sent));
    String numbers = read.from() + read.job() + read.shuffle() + read.map();
    System.out.println(numbers + read.isLast() + read.bytes());
    LinkedTask.Stored stored = output.stored("10.0.0.7", 7337);
    System.out.println(LinkedTask.readStored(content(LinkedTask.message(stored))).equals(stored));
    System.out.println(stored.among(new int[] {5, 10}).sizes());
    refused(Arrays.copyOf(sent, sent.length - 1));
    byte[] huge = sent.clone();
    // the first block's length, behind kind, name, three numbers, a flag, the count and a reduce id
    ByteBuffer.wrap(huge).putInt(1 + 3 + 12 + 1 + 4 + 4, Integer.MAX_VALUE);
    refused(huge);
    ByteBuffer.wrap(huge).putInt(1 + 3 + 12 + 1 + 4 + 4, -1);
    refused(huge);
  }

  private static ByteBuffer content(byte[] message) {
    return ByteBuffer.wrap(message, 1, message.length - 1);
  }

  private static void refused(byte[] message) {
    try {
      LinkedTask.readOutput(content(message));
      System.out.println("read");
    } catch (IOException refused) {
      System.out.println(refused.getMessage());
    }
  }
}
"""

# All but what is written already waits when a frame of a negative length breaks the connection.
BROKEN = """
package rekindle;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.spark.SecurityManager;
import org.apache.spark.SparkConf;
import org.apache.spark.network.client.RpcResponseCallback;
import scala.Option;

public final class Probe {
  private static final int MESSAGES = 64;
  private static final int MESSAGE_BYTES = 1 << 20;

  private record Told(AtomicInteger calls, CountDownLatch all) implements RpcResponseCallback {
    @Override
    public void onSuccess(ByteBuffer answer) {
      throw new IllegalStateException("nobody has answered");
    }

    @Override
    public void onFailure(Throwable failed) {
      calls.incrementAndGet();
      all.countDown();
    }
  }

  public static void main(String[] arguments) throws Exception {
    AtomicInteger calls = new AtomicInteger();
    CountDownLatch all = new CountDownLatch(MESSAGES);
    CountDownLatch last = new CountDownLatch(1);
    Links links = links();
    try (ServerSocket reader = new ServerSocket(0, 1, InetAddress.getByName("127.0.0.1"))) {
      Links.Place place = new Links.Place("127.0.0.1", reader.getLocalPort());
      for (int i = 0; i < MESSAGES; i++) {
        links.send(place, new byte[MESSAGE_BYTES], new Told(calls, all));
      }
      Socket broken = reader.accept();
      broken.getInputStream().readNBytes(MESSAGE_BYTES);
      broken.getOutputStream().write(ByteBuffer.allocate(Long.BYTES).putLong(0, -1).array());
      // what is sent once the connection is broken takes another one, and nobody reads that either
      closing(reader).start();
      System.out.println(all.await(200, TimeUnit.SECONDS));
      // all connections have one thread: it comes to this message behind those
      links.send(place, new byte[1], new Told(new AtomicInteger(), last));
      System.out.println(last.await(200, TimeUnit.SECONDS));
    }
    System.out.println(calls);
    System.exit(0);
  }

  private static Thread closing(ServerSocket reader) {
    return new Thread(
        () -> {
          while (true) {
            try {
              reader.accept().close();
            } catch (IOException ended) {
              return;
            }
          }
        });
  }

  private static Links links() {
    SparkConf conf = new SparkConf(false).set("spark.app.id", "probe");
    var file = org.apache.spark.internal.config.package$.MODULE$.AUTH_SECRET_FILE();
    return new Links(conf, new SecurityManager(conf, Option.empty(), file), "127.0.0.1", null);
  }
}
"""


def said(tmp_path: Path, probe: str, *, spark: bool = False) -> list[str]:
    command = java_probe.command(tmp_path, probe, spark=spark)
    run = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600)
    return run.stdout.splitlines()


def test_what_is_on_its_way_and_what_the_reader_holds_take_credit_and_failures_lose_none(
    tmp_path: Path,
) -> None:
    """Each line: whether so much may be sent, what is on its way, refusals in a row."""
    assert said(tmp_path, CREDIT) == [
        "60:true 60 0",
        "50:false 60 1",
        "40:true 100 0",
        "0:true 100 0",
        "1:false 100 1",
        "1:false 40 2",
        "1:false 0 3",
        "70:true 70 0",
        "70:true 70 0",
        "31:false 0 1",
        "answers:4 0 1",
    ]


def test_messages_come_as_they_were_sent_and_a_damaged_length_takes_no_memory(
    tmp_path: Path,
) -> None:
    assert said(tmp_path, MESSAGES, spark=True) == [
        "3572true3",
        "true",
        "{9=1}",
        *["a block is cut short"] * 3,
    ]


def test_a_message_fails_once_although_spark_says_so_twice(tmp_path: Path) -> None:
    """Twice would make credit out of nothing."""
    assert said(tmp_path, BROKEN, spark=True) == ["true", "true", "64"]
