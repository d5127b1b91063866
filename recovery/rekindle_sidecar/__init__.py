"""The sidecar: stands between one driver and the coordination store.

    serving      one sidecar from its start to its end: `serve`
    options      what it is started with
    container    the container's entry: options from the environment, and its probe
    probing      whether a sidecar answers on its socket
    endpoints    HTTP on the Unix socket: requests in, answers or refusals out
    desk         what a request of the driver does: the sidecar's memory
    refusals     requests that are not taken, each with cause and remedy
    contact      whether the driver is there, by what was heard of it
    held         reports and acknowledgements that the store has not taken yet
    inbox        directives that the driver has not been given yet
    precedence   which of two records is newer, and may take the place of the other
    tending      the rounds: heartbeat, reports, acknowledgements, directives, retention
    heartbeats   the record that says that the driver is there
    deliveries   reports and acknowledgements into the store
    retention    which directives and acknowledgements may go
    figures      what is counted
    monitoring   metrics and health on a port
    sockets      the Unix socket, and who is at its other end
    logs         one line of JSON per event

The event loop belongs to the driver's requests: whatever asks the store runs on a thread and only
hands its outcome over. What has to be decided is decided by functions that get no store at all.
"""
