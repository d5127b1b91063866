"""The custom resources as values: policies, classes, recoveries, and their conditions.

custom_resources   what the custom resources have in common: names, reading, writing
recovery_policy    RecoveryPolicy: what a team wants
recovery_class     RecoveryClass: what a policy may have
node_providers     where replacement nodes come from, as a class says it
recovery_resource  Recovery: one incident of one application
quantities         quantities of Kubernetes, and what a pod requests in all
"""
