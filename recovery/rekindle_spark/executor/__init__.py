"""The host of an executor: the resident Python process that holds states and runs operators.

frames              blocks on the wire: header, Arrow batch, digest
partition           one operator partition: runs its chain for one epoch
source_reading      what a partition reads of a source that has partitions itself
job_activity        signs of what a host does for each job, for the driver to see that it goes
                    on
sandbox             runs partitions in processes beside the host: suspected ones, and functions
                    of less important queries
partition_runner    runs one epoch of one partition, here or beside
work_items          what the items of a request mean
cpu_meter           CPU used per partition and by the executor as a whole
memory_gauge        what a host uses of its memory, and when it says no
stack_sampler       where the CPU of host and driver goes, by samples of stacks, when asked for
host_scheduler      one piece of work at a time, the most urgent first
native_libraries    holds native libraries to one thread, and to common instructions
host_socket         where the host listens, for its own JVM alone
host_answers        what a host answers, and its bytes
host                the resident process: socket, requests, priorities
"""
