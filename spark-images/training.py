"""The application of which archive.sh archives the executor's classes: a shuffle and Python.

Its only argument is the file in which the executor lists the classes that it loads.
"""

import sys

from pyspark import SparkConf, SparkContext


def main(classes: str) -> None:
    """One executor, in a process of its own, on this machine."""
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.extraJavaOptions": f"-XX:DumpLoadedClassList={classes}",
        "spark.executor.memory": "512m",
        "spark.ui.enabled": "false",
    }
    configuration = SparkConf().setMaster("local-cluster[1,1,512]").setAppName("training")
    with SparkContext(conf=configuration.setAll(list(settings.items()))) as context:
        pairs = context.parallelize(range(100), 3).map(lambda number: (number % 7, number))
        pairs.reduceByKey(lambda left, right: left + right).collect()


if __name__ == "__main__":
    main(sys.argv[1])
