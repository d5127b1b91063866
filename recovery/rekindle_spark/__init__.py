"""The epoch runtime on Spark: pipelines, exchanges, hosts, checkpoints and recovery by plans.

checkpoint    state files, restore points, durable input, and when a checkpoint is taken
checks        errors and warnings of a pipeline before it runs
connectors    sources of that kind that read other systems
control       the control plane inside the driver
driver        the driver's main program, its loops, and the state they share
executor      the host process of an executor
flow_control  how large epochs and catch-up jobs may be, and how fast they follow
intervals     stretches of consecutive numbers
jobs          specifications, runs and results of jobs
operators     keyed operators on Arrow data (windows, joins, custom state, top rows)
output        sink files, staged output, and the commit record that makes output count
pipeline      what a user writes, and the program of chains that it becomes
protection    queries of Structured Streaming inside one application, stopped and started by plans
spark         the gateway to Spark's JVM, and the runtime's Java (jvm/)
store         the checkpoint store as the driver writes it
testing       runs a pipeline on given tables in one process, for tests
user_code     users' functions: argument checks, their places in files, limits, failing rows
"""
