"""Checkpoints: state files, restore points, durable input, and the decision to take one.

state_files             versions of partition states, their checkpoints, durable input
table_delta             what has changed in a table since the checkpoint before
restore_points          from where each partition can be brought back
durable_input_job       has the input of partitions that are behind written to the store
savepoint_upgrade       a changed pipeline goes on from a savepoint
checkpoint_coordinator  when to take a checkpoint, and when one is global
"""
