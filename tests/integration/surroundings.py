"""A control plane around one application, and who brings nodes and driver when it asks for them.

Nodes that the coordinator asks for are started at once.
"""

import json
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from application import LASTING, Application

from rekindle.coordination.application_status import ApplicationStatus
from rekindle.protocol import store_paths
from rekindle.protocol.store_paths import Place
from rekindle_cli import coordination_access
from rekindle_coordinator.status_reader import StatusReader
from rekindle_local.local_control_plane import LocalControlPlane
from rekindle_local.local_provisioning import Provisioning
from rekindle_local.spark_cluster import LocalCluster

PLACE = Place("test", "readings")
# Of sidecar and coordinator. 4 s is the least that ZooKeeper grants; a machine may be busy.
SESSION_SECONDS = 6.0
# Drivers plan alone after so long without an answer: longer than that a question waits for one.
RUNTIME = {**LASTING, "alone_seconds": 8}


@dataclass(slots=True)
class Surroundings:
    """What `stack` ends: the control plane, provisioning, the driver."""

    cluster: LocalCluster
    inputs: Path
    directory: Path
    stack: ExitStack
    application: Application = field(init=False)
    provisioning: Provisioning = field(init=False)

    def make(self, servers: int = 1, **options: Any) -> Application:
        """An application on a ZooKeeper of so many servers."""
        folder = self.directory / "provisioning"
        self.provisioning = Provisioning(
            directory=folder,
            down=self._down,
            start_worker=self._start_worker,
            restart_driver=self._restart_driver,
            first_seconds=1.0,
            every_seconds=1.0,
        )
        control = LocalControlPlane(
            directory=self.directory / "control",
            cluster=folder,
            socket=self.cluster.temporary / "sidecar.sock",
            place=PLACE,
            servers=servers,
            session_seconds=SESSION_SECONDS,
        )
        self.application = Application(
            self.cluster,
            self.directory / "application",
            self.inputs,
            control=self.stack.enter_context(control),
            on_start=self._publish_driver,
            runtime=RUNTIME,
            **options,
        )
        self.stack.callback(self.application.driver.end)
        self.provisioning.publish(self.cluster.leaders())
        self.provisioning.start()
        self.stack.callback(self.provisioning.close)
        return self.application

    def succeed(self, socket: Path) -> Application:
        """Another driver of the same application, at a sidecar of its own; not started yet."""
        older = self.application
        self.application = Application(
            self.cluster,
            self.directory / "successor",
            self.inputs,
            store_of=older.store,
            control=older.control,
            socket=socket,
            on_start=self._publish_driver,
            runtime=RUNTIME,
        )
        self.stack.callback(self.application.driver.end)
        return self.application

    def begin_anew(self) -> Application:
        """An application on a checkpoint store of its own, under the name of the one before; not
        started yet."""
        self.application = Application(
            self.cluster,
            self.directory / "anew",
            self.inputs,
            control=self.application.control,
            on_start=self._publish_driver,
        )
        self.stack.callback(self.application.driver.end)
        return self.application

    def standing(self) -> ApplicationStatus:
        """What `rekindle status` shows of the application."""
        control = self.application.control
        assert control is not None
        with coordination_access.opened(control.zookeeper.connect_string, None) as connection:
            return StatusReader(connection).standing(PLACE, time.time())

    def record(self, name: str) -> Any:
        """A record of the application as it stands in the store; None when it is not there."""
        control = self.application.control
        assert control is not None
        with coordination_access.opened(control.zookeeper.connect_string, None) as connection:
            found = connection.get(PLACE.path(name))
        return None if found is None else json.loads(found[0])

    def candidates(self) -> list[str]:
        """Coordinators whose sessions hold and that lead, or would."""
        control = self.application.control
        assert control is not None
        with coordination_access.opened(control.zookeeper.connect_string, None) as connection:
            return list(connection.children(store_paths.ELECTION))

    def _down(self) -> list[str]:
        return [name for name, leader in self.cluster.leaders().items() if leader is None]

    def _start_worker(self, name: str) -> None:
        self.cluster.start_worker(name)
        self.provisioning.publish(self.cluster.leaders())

    def _publish_driver(self) -> None:
        process = self.application.driver.process
        assert process is not None
        self.provisioning.publish_driver(PLACE, process.pid)

    def _restart_driver(self) -> None:
        self.application.driver.start_again()
        self._publish_driver()
