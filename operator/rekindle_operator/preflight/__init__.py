"""Preflight: finds obstacles to a recovery before an application is lost.

Pure: manifests, pods and what is around them in, findings out. `rekindle_operator.kubectl` reads
the cluster and shows the findings.

    preflight_findings  a finding: word, severity, sentence, remedy
    resource_limits     quotas and limits that the application, or its replacements, exceed
    preflight_checks    all checks, in order: protection, failures, spreading, restarts, limits
    subjects            applications, pods and volumes as preflight reads them
"""
