"""A real Kubernetes control plane as processes, and nodes, simulated or real, for tests.

    test_programs       where the programs come from: found, or built once and kept
    go_modules          the Go modules that they are built from
    go_builds           builds them, two modules at a time
    spark_releases      releases of Spark other than the project's own, by pip
    parallel_steps      commands of make that run at the same time
    workshops           one process at a time builds into a folder
    program_runs        finds programs, and runs them to their end, which has a limit
    background_threads  threads beside the caller, inside a context
    file_lock           a file that one process holds at a time
    owned_folders       folders that are removed: ours alone, which a mark in them says
    control_plane       etcd, API server, controller manager and scheduler: started, harmed, ended
    plane_components    the command line of each, and whether it serves
    test_authority      a certificate authority of its own
    kubeconfigs         kubeconfigs for users and service accounts, and clients made of them
    simulated_kubelets  simulated nodes: added, lost, brought back
    node_heartbeats     the leases of all simulated nodes, renewed from one thread
    pod_runner          what a kubelet says of the pods on its node, said for all of them
    kubelet_state       what is known of each simulated node
    pod_processes       what really runs on real nodes: started, killed, frozen
    container_commands  what a container of a pod would run
    spark_image         the same for Spark's image, with the Spark of this machine
    process_owners      the process that has a control plane or a cluster: named, ended
    foreign_crds        custom resource definitions of others, from their Go modules
    node_objects        what is written to the API server for a node, its lease, its pods
    environment_faults  what is missing or wrong, said all at once before anything is made
    exit_codes          exit codes of the commands, and errors said in a line
    bulk_connection     many small requests to the API server over a few connections
    cluster             the same control plane with kubelets and containerds on this machine

Nothing of Rekindle runs in it, but for the host in executors of a real node. The tests in
tests/kubernetes and tests/cluster, and `python -m testbed`, call it; it takes processes, ports,
Spark and errors from rekindle_local, rekindle_spark and rekindle, and nothing imports it.
"""
