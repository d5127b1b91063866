"""A cluster of real nodes on one machine: kubelets and containerds that die as machines do.

    cluster         the whole of it: started, nodes added and lost, ended
    node            one node: containerd, kubelet and kube-proxy on a machine of its own
    machine         the namespaces that hold a node together, so that it dies at once
    network         the switch between machines: cut, healed; the link by which this host is on it
    groups          a cgroup for each machine, by which all that is on it is found
    template        images, imported once, from which nodes are made by hard links
    archives        images made of files, without a container engine
    names           CoreDNS, which answers for the names of services
    places          names, addresses and folders of nodes
    configuration   what containerd, kubelet, kube-proxy and CoreDNS read
    prerequisites   whether this machine can have a cluster, and what is missing
    seat            one cluster on a machine at a time, and where it lies
    limits          a limit of the kernel, lifted for a cluster and put back
    leftovers       what one that was killed has left: found and removed
    orders          calls on a cluster that runs in another process
    commands        `python -m testbed cluster`

The parts that it is made of end with their owner by construction: links, routes and mounts are in
namespaces, which go with the processes in them, and those a watcher ends. Callers are tests/cluster
and the command line.
"""
