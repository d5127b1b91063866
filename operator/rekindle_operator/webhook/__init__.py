"""The admission webhook: its additions to the pods of drivers and executors.

    AdmissionReview ──► judging ──► terms or a refusal ──► patching ──► AdmissionReview with a patch

A pod is never refused: where nothing can be added, it comes up without, and a warning says what to
do. All of it but `webhook_server` is pure, or reads no more than what it is handed.

    policy_view            the webhook's view of policies, classes and domains
    injection_spec         the additions to one pod
    injector               terms of a pod, or why there are none; `Informed`, an outlook
    sidecar_container      the sidecar's container and volumes
    pod_patch              terms into JSON patch operations
    admission_review       the AdmissionReview that comes, and the one that goes back
    webhook_configuration  the MutatingWebhookConfiguration, and the authorities that it trusts
    certificate_rotation   which certificate is presented, and when another one is made
    certificate_issuer     a new authority with one certificate
    certificate_store      the certificate in its Secret, and the authorities in the configuration
    webhook_server         HTTPS in a thread of its own

The shell starts a `webhook_server.Server` with an outlook and a source of certificates, once it has
seen all policies and classes, and tells the outlook what has changed.

    webhook_setup          the webhook, served and trusted
"""
