"""A cluster of real nodes on one machine: kubelets and containerds that die as machines do.

    node_cluster           the whole of it: started, nodes added and lost, ended
    cluster_node           one node: containerd, kubelet and kube-proxy on a machine of its own
    machine_namespaces     the namespaces that hold a node together, so that it dies at once
    machine_network        the switch between machines: cut, healed; the link by which this host is
                           on it
    machine_cgroups        a cgroup for each machine, by which all that is on it is found
    image_template         images, imported once, from which nodes are made by hard links
    containerd_images      images made of files, without a container engine
    cluster_dns            CoreDNS, which answers for the names of services
    machine_names          names, addresses and folders of nodes
    node_configuration     what containerd, kubelet, kube-proxy and CoreDNS read
    cluster_prerequisites  whether this machine can have a cluster, and what is missing
    cluster_lock           one cluster on a machine at a time, and where it lies
    kernel_limits          a limit of the kernel, lifted for a cluster and put back
    cluster_cleanup        what one that was killed has left: found and removed
    control_socket         calls on a cluster that runs in another process
    cluster_commands       `python -m testbed cluster`

The parts that it is made of end with their owner by construction: links, routes and mounts are in
namespaces, which go with the processes in them, and those a watcher ends. Callers are tests/cluster
and the command line.
"""
