"""Who has not the application's secret sends executors nothing over links."""

import subprocess
from pathlib import Path

import java_probe
import pytest

# Says of each secret, and of none, what becomes of a message to a port that has the first one.
PROBE = """
package rekindle;

import java.nio.ByteBuffer;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.spark.SecurityManager;
import org.apache.spark.SparkConf;
import org.apache.spark.network.client.RpcResponseCallback;
import scala.Option;

public final class Probe {
  public static void main(String[] told) throws Exception {
    Links asked = links(told[0], told[1], (message, answer) -> answer.onSuccess(message));
    for (int i = 1; i < told.length; i++) {
      CompletableFuture<String> outcome = new CompletableFuture<>();
      Links asking = links(told[0], told[i], null);
      asking.send(new Links.Place("127.0.0.1", asked.port()), new byte[] {1}, new Answer(outcome));
      System.out.println(told[i] + " " + outcome.get(60, TimeUnit.SECONDS));
      asking.close();
    }
    System.exit(0);
  }

  private record Answer(CompletableFuture<String> outcome) implements RpcResponseCallback {
    @Override
    public void onSuccess(ByteBuffer answer) {
      outcome.complete("answered");
    }

    @Override
    public void onFailure(Throwable failed) {
      outcome.complete("refused");
    }
  }

  private static Links links(String crypto, String secret, Links.Receiver receiver) {
    SparkConf conf = new SparkConf(false).set("spark.app.id", "probe");
    conf.set("spark.network.crypto.enabled", crypto);
    if (!secret.equals("none")) {
      conf.set("spark.authenticate", "true").set("spark.authenticate.secret", secret);
    }
    var file = org.apache.spark.internal.config.package$.MODULE$.AUTH_SECRET_FILE();
    SecurityManager security = new SecurityManager(conf, Option.empty(), file);
    return new Links(conf, security, "127.0.0.1", receiver);
  }
}
"""


@pytest.mark.parametrize("crypto", ["true", "false"])
def test_messages_with_another_secret_or_without_one_are_refused(
    tmp_path: Path, crypto: str
) -> None:
    command = java_probe.command(tmp_path, PROBE, spark=True)
    told = [*command, crypto, "right", "wrong", "none"]
    said = subprocess.run(told, check=True, capture_output=True, text=True, timeout=300).stdout
    assert said.split() == ["right", "answered", "wrong", "refused", "none", "refused"]
