"""The coordinator: the decisions of `rekindle.coordination`, with a real store.

    record_cache            one application's records: read when they change, decoded once
    application_controller  one application: read, decide, write, ask the provider
    coordinator_loop        the loop over all applications: elected, woken, timed
    application_retention   records of applications that are gone are removed
    coordinator_ports       the interface to the cluster: node provider, observer of decisions
    coordinator_log         JSON lines of decisions and events
    json_lines              JSON lines of any process
    coordinator_health      metrics and health of a coordinator
    health_server           metrics and health of a process, on a port
    dual_stack_server       servers that are asked at any address of a machine or pod: sockets and
                            threads
    status_reader           data of `rekindle status` and `rekindle explain`, from the same
                            records

It knows the store, and machines only as a provider. `rekindle_local` runs it for a cluster of local
processes.
"""
