"""The coordinator's local shell: the decisions of `rekindle.coordination`, with a real store.

    gathering        one application's records: read when they change, decoded once
    desk             one application: read, decide, write, ask the provider
    shell            the loop over all applications: elected, woken, timed
    turns            which application is looked at next, and when
    providers        what a coordinator asks of whoever has the machines
    local_provider   the provider of a cluster of local processes
    log              JSON lines of what was decided and what happened
    health           metrics and health on a port
    process          a coordinator as a process, for demo, benchmark and tests
    viewing          what `rekindle status` and `rekindle explain` read, from the same records

The commands `coordinator`, `status` and `explain` call it.
"""
