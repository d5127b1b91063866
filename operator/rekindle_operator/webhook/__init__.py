"""The admission webhook: its additions to the pods of drivers and executors.

    AdmissionReview ──► judging ──► terms or a refusal ──► patching ──► AdmissionReview with a patch

A pod is never refused: where nothing can be added, it comes up without, and a warning says what to
do. The webhook is a process of its own, the command `rekindle-webhook`.

    policy_watch           what that is made of, as watched
    avoided_domains        the domains that executors avoid, as the operator tells them
    injection_spec         the additions to one pod
    injector               terms of a pod, or why there are none
    pod_patch              terms into JSON patch operations
    admission_review       the AdmissionReview that comes, and the one that goes back
    webhook_configuration  the MutatingWebhookConfiguration, and the authorities that it trusts
    certificate_rotation   which certificate is presented, and when another one is made
    certificate_store      the certificate in its Secret, and the authorities in the configuration
    webhook_server         HTTPS in a thread of its own
    webhook_main           the command `rekindle-webhook`: all of it put together

In the operator's process:

    webhook_upkeep         the certificate renewed, and the webhook told what executors avoid
"""
