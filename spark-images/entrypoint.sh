#!/bin/bash
# What Spark on Kubernetes asks of an image: `driver ARGUMENT...` and `executor`, with the rest in
# variables. Anything else is run as it stands. tini is process 1 and hands signals on.
set -euo pipefail

refuse() {
  echo "$1: $2; $3" >&2
  exit 2
}

needs() {
  for name in "$@"; do
    [[ -n ${!name:-} ]] || refuse "$name" 'is not set' 'let Spark make the pod'
  done
}

# Java's login knows users by name, and says nothing but "invalid null input" of one without. Users of
# OpenShift's ranges have none, are of group 0, and may give themselves one.
knows_user() {
  getent passwd "$(id -u)" > /dev/null && return
  [[ -w /etc/passwd ]] && echo "spark-$(id -u):x:$(id -u):0:Spark:/tmp:/usr/sbin/nologin" >> /etc/passwd ||
    refuse "user $(id -u)" 'has no name in the image' 'run the pod as user 185, or name yours in /etc/passwd'
}

case ${1:-} in
  driver)
    shift
    knows_user
    needs SPARK_DRIVER_BIND_ADDRESS
    exec "$SPARK_HOME/bin/spark-submit" --deploy-mode client \
      --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" \
      --conf "spark.executorEnv.SPARK_DRIVER_POD_IP=$SPARK_DRIVER_BIND_ADDRESS" "$@"
    ;;
  executor)
    knows_user
    needs SPARK_DRIVER_URL SPARK_EXECUTOR_ID SPARK_EXECUTOR_CORES SPARK_EXECUTOR_MEMORY \
      SPARK_APPLICATION_ID SPARK_EXECUTOR_POD_IP SPARK_RESOURCE_PROFILE_ID SPARK_EXECUTOR_POD_NAME
    options=()
    class_path=${SPARK_CLASSPATH:+$SPARK_CLASSPATH:}${SPARK_CONF_DIR:-$SPARK_HOME/conf}
    class_path+=${HADOOP_CONF_DIR:+:$HADOOP_CONF_DIR}
    # An archive holds where the class path begins with just the jars of which it was made.
    if [[ -z ${SPARK_CLASSPATH:-} && -r $SPARK_HOME/executor.jsa ]]; then
      options+=("-XX:SharedArchiveFile=$SPARK_HOME/executor.jsa")
      class_path=$(< "$SPARK_HOME/executor.classpath"):$class_path
    fi
    for jar in "$SPARK_HOME"/jars/*.jar; do
      [[ :$class_path: == *:$jar:* ]] || class_path+=:$jar
    done
    class_path+=${SPARK_EXTRA_CLASSPATH:+:$SPARK_EXTRA_CLASSPATH}:$PWD
    # In the order of their numbers: of two that say the same, Java takes the last one.
    while IFS= read -r name; do
      options+=("${!name}")
    done < <(compgen -A variable SPARK_JAVA_OPT_ | sort -t_ -k4n)
    exec "${JAVA_HOME:+$JAVA_HOME/bin/}java" "${options[@]}" \
      "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" -cp "$class_path" \
      org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
      --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" \
      --cores "$SPARK_EXECUTOR_CORES" --app-id "$SPARK_APPLICATION_ID" \
      --hostname "$SPARK_EXECUTOR_POD_IP" --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
      --podName "$SPARK_EXECUTOR_POD_NAME"
    ;;
  *)
    exec "$@"
    ;;
esac
