#!/usr/bin/env bash
# Starts a command of Weir; with the word `executor`, as Spark on Kubernetes starts a pod, an executor.
set -euo pipefail

[ "${1:-}" = executor ] || exec weir "$@"

# Files that the driver sends are unpacked here.
cd "$(mktemp -d)"

# Spark gives the options of the JVM as SPARK_JAVA_OPT_0, SPARK_JAVA_OPT_1 and so on.
options=()
for ((i = 0; ; i++)); do
  name=SPARK_JAVA_OPT_$i
  [ -n "${!name+set}" ] || break
  options+=("${!name}")
done

exec "${JAVA_HOME:+$JAVA_HOME/bin/}java" ${options[@]+"${options[@]}"} \
  "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
  -cp "$SPARK_CONF_DIR:${SPARK_CLASSPATH:+$SPARK_CLASSPATH:}$SPARK_HOME/jars/*:$PWD" \
  org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
  --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" \
  --cores "$SPARK_EXECUTOR_CORES" --app-id "$SPARK_APPLICATION_ID" \
  --hostname "$SPARK_EXECUTOR_POD_IP" --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
  --podName "$SPARK_EXECUTOR_POD_NAME"
