"""The sidecar: stands between one driver and the coordination store.

    sidecar_process      one sidecar from its start to its end: `serve`
    sidecar_options      its options
    sidecar_main         the container's entry: options from the environment, and its probe
    http_api             HTTP on the Unix socket: requests in, answers or refusals out
    sidecar_session      the driver's requests, in the sidecar's memory
    http_errors          requests that are not taken, each with cause and remedy
    held_records         reports for the store, directives for the driver, and which is newer
    store_sync           the rounds: heartbeat, reports, acknowledgements, directives, retention
    sidecar_metrics      metrics and health on a port
    json_log             one line of JSON per event

The event loop belongs to the driver's requests: whatever asks the store runs on a thread and only
hands its outcome over. What has to be decided is decided by functions that get no store at all.
"""
