"""The control plane inside the driver: reports, directives, membership, migrations.

partition_migration  moves of live partitions to other executors, between two epochs
control_loop         observes, confers, obeys: the control plane's end in the driver
query_stop           takes partitions whose functions raise out of what runs
coordinator_client   whose orders are followed: the coordinator's, or those of the core in here
report_builder       what the driver says of itself
sidecar_client       the driver's end of the sidecar: HTTP on a Unix socket
executor_membership  executors that come, go and fall silent
"""
