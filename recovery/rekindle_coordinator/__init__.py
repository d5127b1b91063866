"""The coordinator: the decisions of `rekindle.coordination`, with a real store.

    gathering   one application's records: read when they change, decoded once
    desk        one application: read, decide, write, ask the provider
    shell       the loop over all applications: elected, woken, timed
    turns       which application is looked at next, and when
    providers   what a coordinator asks of whoever has the machines
    log         JSON lines of what was decided and what happened
    health      metrics and health on a port
    driver_figures  what drivers report of themselves, as metrics
    listening   servers that are asked at any address of a machine or pod: sockets and threads
    viewing     what `rekindle status` and `rekindle explain` read, from the same records

It knows the store, and machines only as a provider. `rekindle_local` runs it for a cluster of local
processes.
"""
