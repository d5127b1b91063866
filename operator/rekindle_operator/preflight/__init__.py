"""Preflight: finds obstacles to a recovery before an application is lost.

Pure: manifests, pods and what is around them in, findings out. `rekindle_operator.kubectl` reads
the cluster and shows the findings.

    preflight_findings  a finding: word, severity, sentence, remedy
    node_bound_claims   claims that only one node can have
    resource_quotas     quotas that the application, or its replacements, do not fit in
    object_limits       containers that a quota or a LimitRange keeps from being made
    yaml_types          text without quotes
    name_conflicts      names that two pods cannot have at a time
    failure_limits      failures that Spark counts until it gives up
    anti_affinity       executors and servers of the store that one failure may take together
    node_mix            nodes of several kinds
    restart_policy      whether anybody starts the driver again
    protection_check    policy, class, label and sidecar
    preflight_checks    all of these checks, in order
    subjects            applications, pods and volumes as preflight reads them
"""
