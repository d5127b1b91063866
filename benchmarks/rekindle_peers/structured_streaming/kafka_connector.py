"""The jars with which Spark reads and writes topics of Kafka, which pyspark does not have.

Maven fetches them once. No release of the connector is served for Spark 4.3: the one of 4.2 works
with it. What Spark has itself is left out.
"""

from pathlib import Path

from rekindle_local.maven_jars import JarSet

VERSION = "4.2.0"
ARTIFACTS = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", VERSION),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", VERSION),
    ("org.apache.kafka", "kafka-clients", "3.9.2"),
    ("org.apache.commons", "commons-pool2", "2.13.1"),
)
JARS = JarSet(
    f"Spark's connector of Kafka {VERSION}",
    f"spark-kafka-{VERSION}",
    10,
    "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId>"
        f"<version>{version}</version><exclusions><exclusion><groupId>*</groupId>"
        "<artifactId>*</artifactId></exclusion></exclusions></dependency>"
        for group, name, version in ARTIFACTS
    ),
)


def paths() -> list[Path]:
    """The jars, fetched where they are not there.

    Raises InputError where they cannot be fetched.
    """
    return sorted(JARS.find().glob("*.jar"))
