"""The webhook that the chart registers, where the API server has no way to it."""

from typing import Any

from chart_commands import RELEASE
from kubernetes import client

__all__ = ["ask_about_nothing"]


def ask_about_nothing(api_client: client.ApiClient) -> None:
    """Have it asked about no pod: each would wait for its answer."""
    admission: Any = client.AdmissionregistrationV1Api(api_client)
    found = admission.read_mutating_webhook_configuration(RELEASE)
    nowhere = {"matchLabels": {"example.com/there": "is-no-such"}}
    webhooks = [{"name": item.name, "namespaceSelector": nowhere} for item in found.webhooks]
    admission.patch_mutating_webhook_configuration(RELEASE, {"webhooks": webhooks})
