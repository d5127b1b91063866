"""Remediation: executor pods evicted, nodes fenced, tainted or deleted where a class allows it.

remediation_rules   what is done to nodes themselves: fencing, deletion, taints
remediation_runner  what has to be done to nodes themselves
pod_eviction        executor pods of lost nodes
"""
