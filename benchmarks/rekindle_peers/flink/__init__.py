"""The flights as one job of Flink: what Rekindle is compared with, beside ordinary Spark.

flink_installation  where Flink's jars are, and the jar of the job
flink_conversion    the prepared files in a form that the job reads without a library
flink_cluster       a JobManager, and a TaskManager per node
flink_outputs       what the queries' rows consist of, and the files that have them
flink_checkpoints   what a run has committed, by what the job tells and its sinks' files
flink_evidence      the rows of a run as a report has them
flink_driver        submits the job, tells of its checkpoints, ends it when its input ends

start.json arrivals     when rows came and come in (`row_arrivals`)
checkpoints/            Flink's own
told/SOURCE.jsonl       the checkpoints that were completed, told by the source's enumerator
outputs/QUERY/          lines; files whose names begin with a point do not count
finish end              asked to finish; after how many rows the input ends
"""
