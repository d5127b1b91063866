"""Benchmarks that need the test control plane: figures beside bars, from one run.

    operator     the operator over a large cluster: cost at rest, plans after failures
    bars         from moments and sizes to rows of bars
    layout       what stands where: nodes, applications, pods, and their manifests
    crowd        all of it written to an API server, leases renewed, nodes lost
    bulk         many objects at once, written into etcd
    drivers      the drivers of all applications, as far as the store shows them
    process      the operator as a process that is measured

`python -m operator_benchmark` runs them. It takes the control plane from testbed, and nothing
imports it.
"""
