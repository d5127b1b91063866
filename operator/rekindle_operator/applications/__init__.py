"""Whole Spark applications, unchanged, that come back by priority after nodes were lost.

    lost nodes ──► incident of a policy ──► new pods wait at our scheduling gate (webhook)
    free CPU, waiting pods ──► plan ──► gates lifted, nodes requested, Recovery objects
                                    ──► executors that make room, where the class allows it

application_plan      the planning problem from pods, and which of them the plan admits
displacement          which executors that run make room for an application that matters more
displacement_runner   carries that out
application_incident  which applications are in an incident, and how far each is
wanted_nodes          how many nodes to ask for, and which pods autoscalers see
cluster_room          free CPU of nodes, and the nodes to ask for beside it
stream_progress       how far the streaming queries of an application are, by its driver's jobs
progress_reader       reads that from the Spark UIs of drivers
application_recovery  the shell: what is planned, asked for and told of each policy's incident
application_writer    writes Recoveries and their events, and lifts gates

Why: docs/decisions/0054-whole-applications-wait-at-a-gate.md.
"""
