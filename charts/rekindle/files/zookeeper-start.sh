#!/bin/bash
# Runs one server of ZooKeeper from the jars of the Spark image. POD_NAME ends with its ordinal.
set -euo pipefail
echo $((${POD_NAME##*-} + 1)) > /data/myid
class_path=
# Not all of Spark's jars: with them a server takes twice the CPU to start.
for name in zookeeper slf4j-api log4j-slf4j2-impl log4j-api log4j-core metrics-core snappy-java; do
  found=("$SPARK_HOME"/jars/$name-*.jar)
  if [[ ! -e ${found[0]} ]]; then
    echo "$SPARK_HOME/jars holds no $name-*.jar: zookeeper.image must be a Spark image," \
      "and zookeeper.sparkHome where Spark lies in it" >&2
    exit 2
  fi
  for jar in "${found[@]}"; do class_path+=$jar:; done
done
exec "$JAVA" -Xmx"$HEAP_MEGABYTES"m -XX:+UseSerialGC -XX:+ExitOnOutOfMemoryError \
  -Dlog4j2.level=INFO -cp "$class_path" \
  org.apache.zookeeper.server.quorum.QuorumPeerMain /etc/rekindle/zoo.cfg
