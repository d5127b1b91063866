"""Injection: what the admission webhook adds to the pods of drivers and executors.

    AdmissionReview ──► judging ──► terms or a refusal ──► patching ──► AdmissionReview with a patch

A pod is never refused: where nothing can be added, it comes up without, and a warning says what to
do. All of it but `serving` is pure, or reads no more than what it is handed.

    knowledge       what the shell knows, as the webhook is told
    terms           what holds for one pod
    judging         terms of a pod, or why there are none; `Informed`, an outlook
    containers      the sidecar's container and volumes
    patching        terms into JSON patch operations
    reviews         the AdmissionReview that comes, and the one that goes back
    configuration   the MutatingWebhookConfiguration, and the authorities that it trusts
    certificates    which certificate is presented, and when another one is made
    issuing         a new authority with one certificate
    keeping         the certificate in its Secret, and the authorities in the configuration
    folders         the certificate in a folder, where somebody else renews it
    serving         HTTPS in a thread of its own

The shell starts a `serving.Server` with an outlook and a source of certificates, once it has seen
all policies and classes, and tells the outlook what has changed.
"""
