"""Policies applied: selection of applications, effective limits, and concurrent recoveries.

policy_selection      which applications a policy selects, and who holds where several do
effective_policy      what holds of a policy within its class
policy_conditions     the conditions of a policy and of a class, from all of that
concurrency_limiter   how many applications of a policy, and of a class, recover at once
policy_status_writer  statuses of policies and classes
"""
