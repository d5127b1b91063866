"""The flights as an ordinary application of Structured Streaming: what Rekindle is compared with.

    replayed_streams    the prepared files as streams of Spark, which all arrive by one clock
    streaming_queries   the 18 queries as streaming DataFrames
    committed_batches   what a run has committed, read from checkpoints and sinks
    streaming_driver    starts the queries, starts again those that fail, ends when all is committed
    replay_jar          the jar with the Java of this comparison
    kafka_connector     the jars with which Spark reads and writes topics
    kafka_windows       a program of its own: from a topic through a window to a topic
    submitted           the program for spark-submit on Kubernetes
    streaming_evidence  the rows of a run as a report has them

`python -m rekindle_peers.structured_streaming` is the program that spark-submit starts. It uses

    start.json arrivals     when rows came and come in, for all drivers (`row_arrivals`)
    checkpoints/QUERY/      Spark's own; of a stream that queries share, of `QUERY+QUERY`
    outputs/QUERY/          Parquet files; those that count are named in `_spark_metadata`, of a
                            shared stream those in folders `N` of batches that are committed
    finish end              asked to finish; after how many rows the input ends
"""
