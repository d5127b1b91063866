"""Jobs: their specifications, their results, and who is to blame when a process dies.

job_runner          runs one job and makes its results finished
job_idleness        since when nothing has been done for a job, and by whom
job_results         what came of a job, judged from the reports of its tasks, and their times
link_health         which executors cannot read from each other, and which of them has to go
job_specs           epochs and catch-up pieces as job specifications
fault_attribution   whose fault the death of a process is: an executor's, or a function's
suspect_partitions  which partitions are suspected, and how they run meanwhile
"""
