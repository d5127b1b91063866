"""The commands of `kubectl rekindle`, a module each but for a pair.

A command reads (`api_connection`, `resource_lookup`, `preflight_reader`), lets a pure module decide
what to say, and shows it. Modules are imported when their command is called.

    kubectl_status     applications, and running recoveries
    kubectl_explain    the story of a recovery
    kubectl_plan       queries that wait for the next plan
    kubectl_priority   priorities of queries, for a while
    kubectl_pause      a pause of a policy's applications, and its end
    kubectl_release    gates of pods that wait for their turn, lifted
    kubectl_approve    the approval of a recovery
    kubectl_preflight  obstacles to the recovery of an application
"""
