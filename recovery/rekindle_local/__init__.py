"""What runs on one machine: the command line, and Spark's own cluster as local processes.

Nothing imports this package; it stands on the runtime and the pure core.

    cli                   finds the command, turns errors into messages and exit codes
    commands              the commands, a module each
    options               checks of options that several commands share
    demo                  the demo: a real failure, and a report that anyone can check
    bench                 benchmarks: figures beside bars
    chaos                 random pipelines under random faults, checked row by row
    flights               the pipeline of the demo and the benchmarks
    structured_streaming  the same queries as ordinary Spark, to be compared with
    flink                 the same queries as a job of Flink, to be compared with
    peers                 other systems in the same failure, a line of a table for each
    failures              which nodes fail when, and in which order they come back
    report_html           the report as a page, with the timeline as a picture
    coordinator_process   a coordinator as a process, for demo, benchmark and tests
    local_provider        what a coordinator asks of the cluster: its nodes, its driver
    machines              nodes as cgroups with all their processes, and who leads them
    cluster               the local cluster: one master, N workers, killed and brought back by node
    control_plane         ZooKeeper, coordinator and sidecar of one application, as processes
    stored                the records of a checkpoint store, as any reader sees them
    event_files           event files that another process writes, followed
    cluster_files         the folder through which cluster and coordinator know of each other
    provisioning          the cluster's half of that: says what runs, brings what is asked for
    study_figures         the comparison of planners as tables, JSON and a picture
    pictures              SVG files beside what commands print
    situations            where what-if questions get an application from
    store_access          what commands that speak to the coordination store share
    daemons               one master or worker with everything below it
    distribution          the Java and the Spark on this machine, and their command line
    cgroups               one cgroup per node: CPU quota, CPU time, processes
    processes             sets of processes: started at a gate, stopped, killed whole
    zookeeper             a ZooKeeper as local processes: one server, or an ensemble
    zookeeper_servers     one server of it: configuration, command line, answers
    addresses             ports that are held for servers which must know them before they start
    watcher               the process that ends everything when the cluster's owner is gone
    class_archives        where the archives lie with which JVMs start in half the time
    training              makes those archives, once per machine
"""
