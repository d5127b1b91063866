"""HDFS on this machine: a name node and a data node in one process, killed and started again.

It is Hadoop's own cluster for tests, of the version of the client in pyspark's jars; Maven fetches
it once.
"""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import loud_skips
import pyspark
from killable_server import HOST, KillableServer

LOUD = "NO STORE ON HDFS WAS TESTED"
START_SECONDS_MAX = 180.0
FETCH_SECONDS_MAX = 600.0
JARS = Path(pyspark.__file__).parent / "jars"
SOURCE = """
import java.io.File;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;

public final class NameNode {
  public static void main(String[] arguments) throws Exception {
    File folder = new File(arguments[0]);
    MiniDFSCluster cluster =
        new MiniDFSCluster.Builder(new Configuration(), folder)
            .nameNodePort(Integer.parseInt(arguments[1]))
            .numDataNodes(1)
            .format(!folder.exists())
            .build();
    cluster.waitActive();
    new File(arguments[2]).createNewFile();
    Thread.currentThread().join();
  }
}
"""


def archive() -> Path:
    """The jar of Hadoop's cluster for tests; skips, or fails in CI, where it cannot be had."""
    version = next(JARS.glob("hadoop-client-api-*.jar")).stem.removeprefix("hadoop-client-api-")
    name = f"hadoop-client-minicluster-{version}"
    found = Path.home() / ".m2/repository/org/apache/hadoop/hadoop-client-minicluster"
    jar = found / version / f"{name}.jar"
    if not jar.exists():
        _fetch(version)
    if not jar.exists():
        loud_skips.skip(f"Maven could not fetch {name}", LOUD)
    return jar


def _fetch(version: str) -> None:
    maven = shutil.which("mvn")
    if maven is not None:
        artifact = f"org.apache.hadoop:hadoop-client-minicluster:{version}"
        options = ("-q", "-B", "dependency:get", f"-Dartifact={artifact}", "-Dtransitive=false")
        subprocess.run([maven, *options], timeout=FETCH_SECONDS_MAX, check=False)


@dataclass(slots=True, kw_only=True)
class NameNode(KillableServer):
    """The jar, and a folder for what it keeps."""

    jar: Path

    def __post_init__(self) -> None:
        KillableServer.__post_init__(self)
        self.folder.mkdir()
        (self.folder / "NameNode.java").write_text(SOURCE)
        command = ["javac", "-cp", self._class_path, "-d", str(self.folder), "NameNode.java"]
        subprocess.run(command, cwd=self.folder, check=True)

    @property
    def place(self) -> str:
        """Its URL, the same for every start."""
        return f"hdfs://{HOST}:{self.port}"

    def start(self) -> None:
        """Start it, and wait until it can be written."""
        ready = self.folder / "ready"
        ready.unlink(missing_ok=True)
        options = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
        self.launch(
            [
                *("java", *options, "-cp", f"{self.folder}:{self._class_path}", "NameNode"),
                *(self.folder / "data", self.port, ready),
            ],
            ready.exists,
            START_SECONDS_MAX,
        )

    @property
    def _class_path(self) -> str:
        return f"{self.jar}:{JARS}/*"
