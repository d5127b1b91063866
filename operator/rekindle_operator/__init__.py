"""The operator: detection, decisions and replacement nodes on Kubernetes.

Gather, decide, apply around the pure core. All that decides is pure itself: values in, values out,
no Kubernetes client and no clock. `controller` watches and writes.

    api           the custom resources as values
    cluster       pods, nodes and applications, the API client and watches
    controller    the operator's process: it watches, decides by what is pure, and writes
    detection     which nodes are lost, from leases and driver reports
    kubectl       `kubectl rekindle`
    policies      which applications a policy selects, and what holds for them
    preflight     what would keep an application from coming back, found beforehand
    provisioning  from what the core asks for to objects of whoever has the machines
    recovery      an incident told in a Recovery's status, from what the core decides
    remediation   pods evicted; nodes fenced, tainted or deleted
    webhook       what the admission webhook adds to pods
"""
