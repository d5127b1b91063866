"""Preflight: what would keep an application from coming back, told before it is lost.

Pure: manifests, pods and what is around them in, findings out. `rekindle_operator.plugin` reads the
cluster and shows the findings.

    findings        a finding: word, severity, sentence, remedy
    forms           which field is what, as far as preflight reads it
    sizes           what Spark asks Kubernetes for, from its settings
    volumes         persistent volume claims that drivers and executors mount
    workloads       an application as checks see it, whoever runs it
    kubeflow        an application from a SparkApplication of kubeflow's operator
    apache          an application from a SparkApplication of apache's operator
    plain           an application from a driver's pod and its executors' pods
    surroundings    what is around an application: claims, quotas, nodes, policies, classes
    storage         claims that only one node can have
    quotas          quotas that the application, or its replacements, do not fit in
    containers      containers of the pods that Spark will make
    limits          containers that a quota or a LimitRange keeps from being made
    writing         text without quotes
    names           names that two pods cannot have at a time
    failing         failures that Spark counts until it gives up
    spreading       executors and servers of the store that one failure may take together
    mixing          nodes of several kinds
    restarting      whether anybody starts the driver again
    protecting      policy, class, label and sidecar
    inspection      all of these checks, in order
"""
