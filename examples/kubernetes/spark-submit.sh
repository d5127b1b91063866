#!/bin/sh
# Submits the application with spark-submit in cluster mode.
#   MASTER   the API server: k8s://https://HOST:PORT
#   IMAGE    where the image of spark-images/ has been pushed
set -eu
here=$(dirname "$0")
# The operator knows the application by the label rekindle.dev/application, whatever pods are called.
# Nobody starts a driver again that was submitted so: its loss needs a person, or one of the operators.
exec spark-submit \
  --master "$MASTER" \
  --deploy-mode cluster \
  --name machines \
  --conf spark.kubernetes.namespace=factory \
  --conf spark.kubernetes.authenticate.driver.serviceAccountName=spark \
  --conf spark.kubernetes.container.image="$IMAGE" \
  --conf spark.kubernetes.driver.label.rekindle.dev/inject=true \
  --conf spark.kubernetes.driver.label.rekindle.dev/application=machines \
  --conf spark.kubernetes.executor.label.rekindle.dev/application=machines \
  --conf spark.kubernetes.driver.podTemplateFile="$here/driver.yaml" \
  --conf spark.kubernetes.executor.podTemplateFile="$here/executor.yaml" \
  --conf spark.executor.instances=3 \
  --conf spark.executor.cores=4 \
  --conf spark.kubernetes.executor.request.cores=1 \
  --conf spark.kubernetes.executor.limit.cores=1 \
  --conf spark.executor.memory=1g \
  --conf spark.executor.memoryOverhead=1g \
  --conf spark.kubernetes.driver.request.cores=500m \
  --conf spark.driver.memory=1g \
  --conf spark.driver.memoryOverhead=512m \
  --conf spark.executor.maxNumFailures=1000 \
  --conf spark.executor.failuresValidityInterval=1h \
  --conf spark.kubernetes.submission.waitAppCompletion=false \
  local:///opt/rekindle/run.py /pipeline/machines.py \
  --store /shared/store --settings /pipeline/settings.yaml
