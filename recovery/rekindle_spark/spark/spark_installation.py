"""What Spark needs on this machine: Java, pyspark, the right SPARK_HOME, and a network.

The command line calls it before it tries a pipeline or starts a process, and the driver before it
starts Spark: Spark itself only reports that its gateway has ended, and names neither. Java is that
of JAVA_HOME, then of PATH, as Spark looks for it; the local cluster uses it for its own processes.
"""

import errno
import locale
import os
import re
import shutil
import socket
import subprocess
from importlib import metadata
from pathlib import Path

from rekindle.model.errors import InputError

# The runtime's Java is compiled against it; `rekindle[spark]` installs it.
VERSION = "4.3"
JAVA_VERSION_MIN = 17
JAVA_SECONDS_MAX = 60.0
LOOPBACK, LOOPBACK_SECONDS_MAX = "127.0.0.1", 5.0
UNREACHABLE = (errno.ENETUNREACH, errno.EADDRNOTAVAIL)
# Where one of these is set Spark may know its machine's address, the last two by a spark-env.sh.
ADDRESSES = ("SPARK_LOCAL_IP", "SPARK_LOCAL_HOSTNAME", "SPARK_CONF_DIR", "SPARK_HOME")
# The codeset of the locales C and POSIX on Linux. Java on macOS reads paths as UTF-8 in any locale.
ASCII = "ANSI_X3.4-1968"


def check(spark_home: str | None) -> None:
    """Refuse a machine on which Spark cannot start.

    `spark_home` is the value of SPARK_HOME, None where it does not count. Raises `InputError`.
    """
    check_pyspark()
    read_java_version(find_java())
    _check_loopback()
    _check_name()
    if spark_home:
        _check_home(spark_home)


def replace_ascii_locale() -> None:
    """Set the locale of the processes that this one starts to C.UTF-8 if it is C or POSIX.

    In an ASCII locale Java opens no path with a letter beyond ASCII, and does not start in such a
    folder. Other locales stay: their paths may have another encoding.
    """
    # pyspark starts Java with the environment of this process, so it is set here.
    if locale.nl_langinfo(locale.CODESET) == ASCII:
        os.environ["LC_ALL"] = "C.UTF-8"


def check_pyspark() -> None:
    """Refuse a pyspark of another version. Raises `InputError`.

    One that is missing, or that pip did not install, is not refused here.
    """
    try:
        found = metadata.distribution("pyspark")
    except metadata.PackageNotFoundError:
        return
    if not _fits(found.version):
        raise InputError(
            where=f"pyspark in {found.locate_file('')}",
            what=f"is version {found.version}, needed is {VERSION}",
            remedy=f"pip install 'pyspark=={VERSION}.*', or use an environment with nothing but "
            "rekindle[spark]",
        )


def find_java() -> Path:
    """Look for java. Raises `InputError` where there is none."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home, "bin")) if home else None)
    if found is None:
        raise InputError(
            where=f"JAVA_HOME {home}" if home else "PATH",
            what="there is no java",
            remedy=f"install a JDK {JAVA_VERSION_MIN} or newer, or point JAVA_HOME to one",
        )
    return Path(found)


def read_java_version(java: Path) -> str:
    """Return what `java -version` prints. Raises `InputError` where it is too old, or no Java."""
    try:
        done = subprocess.run(
            [java, "-version"],
            capture_output=True,
            text=True,
            timeout=JAVA_SECONDS_MAX,
            check=False,
        )
        said = done.stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        said = str(error)
    match = re.search(r'version "(\d+)', said)
    if match is None or int(match[1]) < JAVA_VERSION_MIN:
        raise InputError(
            where=str(java),
            what=f"is not Java {JAVA_VERSION_MIN} or newer: "
            + (" ".join(said.split())[:200] or "it printed no version"),
            remedy=f"install a JDK {JAVA_VERSION_MIN} or newer, or point JAVA_HOME to one",
        )
    return said


def _check_loopback() -> None:
    """Refuse a machine whose processes do not reach each other. Daemons would listen, and wait for
    each other until their start takes too long."""
    try:
        with socket.create_server((LOOPBACK, 0)) as server:
            address = server.getsockname()
            socket.create_connection(address, timeout=LOOPBACK_SECONDS_MAX).close()
    except OSError as error:
        if not isinstance(error, TimeoutError) and error.errno not in UNREACHABLE:
            return  # Spark reports why a process may not listen
        raise InputError(
            where=LOOPBACK,
            what=f"cannot be reached on this machine ({error.strerror or error})",
            remedy="bring its loopback interface up, with `ip link set lo up`",
        ) from error


def _check_name() -> None:
    """Refuse a machine that does not know its own name, which Spark looks up at its start."""
    if any(os.environ.get(variable) for variable in ADDRESSES):
        return
    name = socket.gethostname()
    try:
        socket.getaddrinfo(name, None)
    except (OSError, UnicodeError) as error:
        raise InputError(
            where=f"host name {name}",
            what=f"cannot be resolved on this machine ({getattr(error, 'strerror', error)})",
            remedy=f"add it to /etc/hosts, or set {ADDRESSES[0]} to an address of this machine",
        ) from error


def _check_home(home: str) -> None:
    """Spark's scripts in this folder would start the driver's JVM, whatever pyspark says."""
    jars = Path(home, "jars").glob("spark-core_*.jar")
    versions = [re.sub(r"spark-core_[^-]*-|\.jar$", "", jar.name) for jar in jars]
    if not versions:
        what = "is no installation of Spark"
    elif not _fits(versions[0]):
        what = f"is Spark {versions[0]}, needed is {VERSION}"
    else:
        return
    raise InputError(
        where=f"SPARK_HOME {home}",
        what=what,
        remedy=f"unset SPARK_HOME, or let it name a Spark {VERSION}",
    )


def _fits(version: str) -> bool:
    return version.split(".")[:2] == VERSION.split(".")
