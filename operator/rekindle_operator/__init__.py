"""The operator: detection, decisions and replacement nodes on Kubernetes.

Gather, decide, apply around the pure core. All that decides is pure itself: values in, values out,
no Kubernetes client and no clock. `controller` watches and writes.

    api              the custom resources as values
    applications     whole Spark applications, unchanged, that come back by priority
    cluster          pods, nodes and applications, the API client and watches
    controller       the operator's process: wiring, leader election, effects
    detection        which nodes are lost, from leases and driver reports
    gates            our scheduling gate taken off pods, at an uninstall or by hand
    kubectl          `kubectl rekindle`
    policies         the applications of a policy, and its effective values
    preflight        obstacles to a recovery, found beforehand
    process_command  a process of the operator as a command: shared options, errors, exit codes
    provisioning     replacement nodes: the core's requests as objects of providers
    recovery         the status of a Recovery, from the core's decisions
    remediation      pods evicted; nodes fenced, tainted or deleted
    webhook          additions of the admission webhook to pods
"""
