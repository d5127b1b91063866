"""Whole Spark applications, unchanged, that come back by priority after nodes were lost.

    lost nodes ──► incident of a policy ──► new pods wait at our scheduling gate (webhook)
    free CPU, waiting pods ──► plan ──► gates lifted, nodes requested, Recovery objects

application_plan      the planning problem from pods, and which of them the plan admits
application_incident  which applications are in an incident, and how far each is
application_recovery  the shell: gates lifted, Recoveries and events written

Why: docs/decisions/0054-whole-applications-wait-at-a-gate.md.
"""
