"""The operator: detection, decisions and replacement nodes on Kubernetes.

Gather, decide, apply around the pure core. All that decides is pure itself: values in, values out,
no Kubernetes client and no clock. `shell` watches and writes.

What people ask for, and what they are told:

    resources           what the custom resources have in common: names, reading, writing
    conditions          conditions of resources, and the words for their reasons
    policies            RecoveryPolicy: what a team wants
    classes             RecoveryClass: what a policy may have
    providers           where replacement nodes come from, as a class says it
    selection           which applications a policy selects, and who holds where several do
    narrowing           what holds of a policy within its class
    ranking             which recoveries of a policy go on at once, and which wait
    acceptance          the conditions of a policy and of a class, from all of that
    recoveries          Recovery: one incident of one application
    stories             what became of it: nodes, requests, plans, queries
    story               an incident told in a Recovery's status, from what the core decides
    announcements       Kubernetes Events, from what has changed between two statuses
    dangers             what may make coordination fail
    outlook             what the loss of each failure domain would stop

What is there:

    pods                what is kept of a pod
    spark_containers    which container of a pod runs Spark
    nodes               what is kept of a node
    sparkapplications   what is kept of a SparkApplication
    quantities          quantities of Kubernetes, and what a pod requests in all
    hearing             what a driver has said of the executors on each node
    registry            all that has been seen, joined as it changes
    joining             which pods make up which application
    locating            which pod a driver means by a node of its report
    footing             why an application is not protected
    protection          the same, as a policy's status says it
    capacity            CPU of nodes that is free for an application

Which nodes are lost, and what replaces them:

    observation         what a round of detection is told, and the rules by which it judges
    detection           suspected and lost nodes, a round at a time
    leases              which leases have stopped, by our own clock
    population          the nodes of the cluster as detection knows them
    verdicts            what detection finds, one value per event
    grounds             the words for it that the core's list of reasons does not have
    domains             failure domains of nodes, and which of them are impaired
    remedies            what is done to nodes themselves: fencing, deletion, taints
    provisioning        from what the core asks for to objects of whoever has the machines

Around it:

    shell               the operator's process: it watches, decides by what is pure, and writes
    injection           what the admission webhook adds to pods
    plugin              `kubectl rekindle`
    preflight           what would keep an application from coming back, found beforehand

"""
