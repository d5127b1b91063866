#!/bin/bash
# Runs one server of ZooKeeper from the jars of the Spark image. POD_NAME ends with its ordinal, and
# TLS_FOLDER, where there is TLS, has tls.key, tls.crt and ca.crt.
set -euo pipefail
echo $((${POD_NAME##*-} + 1)) > /data/myid
class_path=
# Not all of Spark's jars: with them a server takes twice the CPU to start.
names=(zookeeper- slf4j-api- log4j-slf4j2-impl- log4j-api- log4j-core- metrics-core- snappy-java-)
if [[ -n ${TLS_FOLDER:-} ]]; then
  # Without the libraries of the system that Netty may bring: Java's own network and TLS do.
  for part in buffer codec-base common handler resolver transport transport-classes-epoll \
    transport-native-unix-common; do names+=("netty-$part-[0-9]"); done
fi
for name in "${names[@]}"; do
  # shellcheck disable=SC2206  # names are patterns
  found=("$SPARK_HOME"/jars/$name*.jar)
  if [[ ! -e ${found[0]} ]]; then
    echo "$SPARK_HOME/jars holds no $name*.jar: zookeeper.image must be a Spark image," \
      "and zookeeper.sparkHome where Spark lies in it" >&2
    exit 2
  fi
  for jar in "${found[@]}"; do class_path+=$jar:; done
done
# Writes the files that ZooKeeper reads if they have changed: key and certificate in one. A Secret's
# volume changes as a whole, by a link, which ZooKeeper would not see; all is read behind that link,
# so that key and certificate belong together.
write_pem() {
  local folder server authorities
  umask 077
  folder=$TLS_FOLDER/$(readlink "$TLS_FOLDER"/..data || true)
  server=$(cat "$folder"/tls.key && echo && cat "$folder"/tls.crt) || return
  authorities=$(cat "$folder"/ca.crt) || return
  if [[ ! -e /tmp/tls/server.pem || $server != "$(< /tmp/tls/server.pem)" ]]; then
    echo "$server" > /tmp/tls/new && mv /tmp/tls/new /tmp/tls/server.pem
  fi
  if [[ ! -e /tmp/tls/authorities.pem || $authorities != "$(< /tmp/tls/authorities.pem)" ]]; then
    echo "$authorities" > /tmp/tls/new && mv /tmp/tls/new /tmp/tls/authorities.pem
  fi
}
if [[ -n ${TLS_FOLDER:-} ]]; then
  (umask 077 && mkdir -p /tmp/tls)
  (write_pem)
  # As long as this process lives, which becomes the server.
  while sleep 5 && kill -0 $$; do (write_pem) || true; done 2> /dev/null &
fi
# Netty takes memory beside the heap, and threads, by what the whole node has.
exec "$JAVA" -Xmx"$HEAP_MEGABYTES"m -XX:+UseSerialGC -XX:+ExitOnOutOfMemoryError \
  -XX:MaxDirectMemorySize=96m -Dio.netty.eventLoopThreads=4 \
  -Dlog4j2.level=INFO -cp "$class_path" \
  org.apache.zookeeper.server.quorum.QuorumPeerMain /etc/rekindle/zoo.cfg
