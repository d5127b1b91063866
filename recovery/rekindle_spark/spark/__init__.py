"""Spark's side of the runtime: the gateway to its JVM, the jar, and the Java in `jvm/`.

spark_gateway  Spark jobs of pinned tasks, retained and removed shuffles (Java in jvm/)
spark_installation  whether Java, pyspark and SPARK_HOME are those that Spark needs
spark_master   whether a Spark master answers, before anything waits for it
jvm_build      compiles Java sources into a jar, those of the runtime before all
"""
