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


def said(tmp_path: Path, probe: str, *, spark: bool = False) -> list[str]:
    command = java_probe.command(tmp_path, probe, spark=spark)
    run = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
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
