"""The operator's process: it watches, lets the pure parts decide, and writes.

coordination_risks     what may make coordination fail
operator_main          the command `rekindle-operator`
operator_options       what it is started with
wiring                 all parts put together, started, ended
kopf_watchers          kopf's handlers: policies, classes, recoveries, SparkApplications
coordination_adapter   provider of nodes and oversight, as the coordinator's loop sees them
effects                what follows from decisions, left as errands
leader_election        who acts
namespace_credentials  credentials of the store, and the rights of each namespace there
operator_metrics       what is counted
operator_reader        what the console shows: Recoveries beside what a coordinator knows
log_capture            what libraries say, as lines of the log
store_certificate      the certificate of the store's servers, where the operator makes it
"""
