"""Benchmarks that need the test control plane: figures beside bars, from one run.

    operator_at_scale  the operator over a large cluster: cost at rest, plans after failures
    operator_bars      from moments and sizes to rows of bars
    cluster_layout     what stands where: nodes, applications, pods, and their manifests
    cluster_objects    all of it written to an API server, leases renewed, nodes lost
    bulk_objects       many objects at once, written into etcd
    benchmark_drivers  the drivers of all applications, as far as the store shows them
    operator_process   the operator as a process that is measured
    cpu_waits          how long a process has waited for a CPU
    application_planning  the first plan for many whole applications, without a cluster

`python -m operator_benchmark` runs them. It takes the control plane from testbed, and nothing
imports it.
"""
