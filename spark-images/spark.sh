#!/bin/sh
# Spark out of /opt/rekindle, at the place where everybody looks for it; both are moved to a folder.
#
#   spark.sh FOLDER           JARS_LEFT_OUT has patterns of jars
set -eu
cd /opt/rekindle/lib/python*/site-packages/pyspark
# pyspark a second time, as a zip; examples and their data; programs of Windows.
rm -rf data examples python bin/*.cmd
for pattern in ${JARS_LEFT_OUT:-}; do rm -f jars/$pattern; done
# Spark mounts folders there, so that it has to be one and no link.
mkdir -p /opt/spark/conf /opt/spark/pod-template /opt/spark/work-dir "$1/opt"
ln -s "$PWD/bin" "$PWD/sbin" /opt/spark/
mv jars /opt/spark/
ln -s /opt/spark/jars jars
mv /opt/rekindle /opt/spark "$1/opt/"
ln -s "$1/opt/rekindle" /opt/rekindle
