"""What scenarios leave on a cluster that stays, and in the folder of their run."""

import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from scenarios.ground import Ground


class Tokens:
    """An API server that gives tokens."""

    def create_namespaced_service_account_token(self, *_: Any) -> Any:
        return SimpleNamespace(status=SimpleNamespace(token="secret"))


def test_the_token_of_the_acted_operators_goes_with_the_run(tmp_path: Path) -> None:
    ground, api_client = Ground(tmp_path), SimpleNamespace()
    api_client.configuration = SimpleNamespace(host="https://127.0.0.1:1", ssl_ca_cert="authority")
    ground.core, ground.api_client = Tokens(), api_client  # type: ignore[assignment]
    path = ground._token_kubeconfig()
    assert "token: secret" in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    ground.held.close()
    assert not path.exists()
