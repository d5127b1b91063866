"""Spark's own cluster as processes of one machine, and the demo on it.

The demo, the tests and the laboratory share it. Nothing of the product imports this package; its
commands join the command line by entry points.

    commands              `rekindle demo` and `rekindle coordinator`
    demo                  the demo: a real failure, and a report that anyone can check
    local_run             runs a user's pipeline on a cluster of this machine
    flights               the pipeline of the demo and the benchmarks
    failures              which nodes fail when, and in which order they come back
    coordinator_process   a coordinator as a process, for demo, benchmark and tests
    local_provider        what a coordinator asks of the cluster: its nodes, its driver
    machines              nodes as cgroups with all their processes, and who leads them
    cluster               the local cluster: one master, N workers, killed and brought back by node
    control_plane         ZooKeeper, coordinator and sidecar of one application, as processes
    stored                the records of a checkpoint store, as any reader sees them
    cluster_files         the folder through which cluster and coordinator know of each other
    provisioning          the cluster's half of that: says what runs, brings what is asked for
    daemons               one master or worker with everything below it, and groups of them
    distribution          the Java and the Spark on this machine, and their command line
    cgroups               one cgroup per node: CPU quota, CPU time, processes
    processes             sets of processes: started at a gate, stopped, killed whole
    zookeeper             a ZooKeeper as local processes: one server, or an ensemble
    zookeeper_servers     one server of it: configuration, command line, answers
    addresses             ports that are held for servers which must know them before they start
    watcher               the process that ends everything when the cluster's owner is gone
    class_archives        where the archives lie with which JVMs start in half the time
    training              makes those archives, once for all clones
    training_application  the small application of which they hold the classes
    cached_files          files in the user's cache, used only while they are intact
    wheel_records         what a wheel recorded about its files: path, digest, size
"""
