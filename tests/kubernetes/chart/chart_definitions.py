"""Definitions of the kinds of others that the chart makes objects of: Prometheus, cert-manager.

They come and are kept like those of providers (testbed's foreign_crds.py).
"""

from collections.abc import Iterator
from unittest import mock

from chart_commands import Object

from testbed import foreign_crds
from testbed.foreign_crds import Foreign

__all__ = ["foreign_definitions"]

_MONITORING = "example/prometheus-operator-crd/monitoring.coreos.com"
FOREIGN = {
    "prometheus-operator": Foreign(
        "github.com/prometheus-operator/prometheus-operator",
        "v0.85.0",
        (f"{_MONITORING}_servicemonitors.yaml", f"{_MONITORING}_prometheusrules.yaml"),
    ),
    "cert-manager": Foreign(
        "github.com/cert-manager/cert-manager",
        "v1.21.2",
        (
            "deploy/crds/cert-manager.io_certificates.yaml",
            "deploy/crds/cert-manager.io_issuers.yaml",
        ),
    ),
}


def foreign_definitions() -> Iterator[Object]:
    """Every one of them, downloaded first where the cache does not have it."""
    with mock.patch.dict(foreign_crds.FOREIGN, FOREIGN):
        for name in FOREIGN:
            for file in foreign_crds.find(name):
                yield foreign_crds.definition(file)
