"""Spark's own cluster as processes of one machine, and the demo on it.

The demo, the tests and the laboratory share it. Nothing of the product imports this package; its
commands join the command line by entry points.

    local_commands          `rekindle demo` and `rekindle coordinator`
    demo                    the demo: a real failure, and a report that anyone can check
    local_run               runs a user's pipeline on a cluster of this machine
    flights                 the pipeline of the demo and the benchmarks
    failure_schedule        which nodes fail when, and in which order they come back
    local_nodes             nodes as cgroups with all their processes, and who leads them
    spark_cluster           the local cluster: one master, N workers, killed and brought back by
                            node
    local_control_plane     ZooKeeper, coordinator and sidecar of one application, as processes
    stored_records          the records of a checkpoint store, as any reader sees them
    local_provisioning      the cluster's half of that: lists and starts nodes
    daemons                 one master or worker with everything below it, and groups of them
    spark_distribution      the Java and the Spark on this machine, and their command line
    cgroups                 one cgroup per node: CPU quota, CPU time, processes
    process_sets            sets of processes: started at a gate, stopped, killed whole
    local_zookeeper         a ZooKeeper as local processes: one server, or an ensemble
    kafka_broker            a broker of Kafka, for the demo and the tests
    maven_jars              jars that Maven fetches once into the user's cache
    port_reservation        ports that are held for servers which must know them before they start
    process_reaper          the process that ends everything when the cluster's owner is gone
    class_archives          where the archives lie with which JVMs start in half the time
    class_data_training     makes those archives, once for all clones
    class_data_application  the small application of which they hold the classes
    cached_files            files in the user's cache, used only while they are intact
"""
