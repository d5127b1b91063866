"""A control plane for tests: etcd, API server, controller manager and scheduler on loopback.

The components are stopped, continued, killed and started again one by one, like the servers of
rekindle_local's ZooKeeper, and like those they leave nothing behind, however their owner ends: a
watcher process sees to that. It has no nodes; simulated_kubelets.py adds simulated ones.

tests/kubernetes and the command line call it. Calls about different components may come from
different threads.
"""

import atexit
import itertools
import os
import ssl
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from kubernetes import client

from rekindle.model.errors import RunError
from rekindle_cli import cli_options
from rekindle_local import cgroups, process_sets
from rekindle_local.daemons import Daemon, DaemonGroup, end_daemons
from rekindle_local.port_reservation import hold_port
from rekindle_local.process_reaper import ProcessReaper
from testbed import kubeconfigs, owned_folders, plane_components, test_programs
from testbed.plane_components import HOST
from testbed.test_authority import Authority, TestCertificate, make_signing_keys
from testbed.test_programs import API_SERVER, CONTROL_PLANE, CONTROLLER_MANAGER, ETCD, SCHEDULER

START_SECONDS_MAX = 120.0
STOP_SECONDS_MAX = 10.0
PEERS = "peers"
CLIENTS = (CONTROLLER_MANAGER, SCHEDULER)
ADMINISTRATORS = "system:masters"
# The first address of the range for services is the API server's.
SERVER_ADDRESS = "10.96.0.1"
SERVER_NAMES = ("kubernetes.default.svc", "kubernetes.default.svc.cluster.local")
# Whoever starts at once would otherwise find no namespace for leases, or no account for its pods.
_AWAITED_ACCOUNTS = ("default", "kube-node-lease")


class ControlPlane(DaemonGroup):
    """A context manager: inside, all four components serve; after it, no process is left.

    `directory` takes logs, and while it runs data, keys and kubeconfigs. `programs` are the paths
    of the components by name, found or built when left out. A node whose lease has not changed for
    `node_grace_seconds` becomes Ready=Unknown; every `node_monitor_seconds` the controller manager
    looks. `arguments` are added to a component's command line, by its name. For real nodes
    (cluster/) the API server listens at an `address` that these reach, and each component gets a
    cgroup below `group`, by which it is found when owner and watcher are gone. Raises `InputError`
    for a setting out of range.
    """

    def __init__(
        self,
        *,
        directory: Path,
        programs: Mapping[str, Path] | None = None,
        node_grace_seconds: float = 50.0,
        node_monitor_seconds: float = 5.0,
        arguments: Mapping[str, Sequence[str]] | None = None,
        address: str = HOST,
        group: cgroups.Group | None = None,
    ) -> None:
        cli_options.check_range("node_grace_seconds", node_grace_seconds, 1, 86_400)
        cli_options.check_range("node_monitor_seconds", node_monitor_seconds, 0.1, 86_400)
        self._check_names(arguments or {})
        self.directory = directory.absolute()
        self._programs = programs
        self._node_seconds = (node_grace_seconds, node_monitor_seconds)
        self._arguments = dict(arguments or {})
        self._address = address
        self._group = group
        self._owner = os.getpid()
        self._held = ExitStack()
        self._watcher: ProcessReaper | None = None
        self._daemons: dict[str, Daemon] = {}
        self._stopped: set[str] = set()
        self._numbers = itertools.count(1)

    @property
    def logs(self) -> Path:
        """Logs of components and watcher; they stay."""
        return self.directory / "logs"

    @property
    def server(self) -> str:
        """The API server's URL."""
        return f"https://{self._address}:{self._plan.ports[API_SERVER]}"

    @property
    def authority(self) -> Path:
        """The certificate by which clients check the API server, and it checks webhooks of ours."""
        return self._authority.certificate

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig of an administrator, who may do everything."""
        return self._kubeconfigs / "admin.yaml"

    def start(self) -> None:
        """Start an empty control plane and wait until it serves.

        Raises `InputError` when programs are missing and cannot be built, or another's folder is
        where its data go, `RunError` when a component does not come up; then nothing is left
        running.
        """
        owned_folders.check(self._state)
        owned_folders.check_place(self.logs)
        programs = dict(self._programs or test_programs.find())
        owned_folders.remove(self._state)
        self.logs.mkdir(parents=True, exist_ok=True)
        atexit.register(self.close)
        try:
            tops = () if self._group is None else self._group.directories
            self._watcher = ProcessReaper(tops, self.logs / "watcher.log")
            self._plan = self._make_plan(programs)
            self._write_own_kubeconfigs()
            self._daemons = {name: self._make_daemon(name) for name in CONTROL_PLANE}
            self.start_component(ETCD, API_SERVER)
            self.start_component(*CLIENTS)
            self._await_accounts()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End every component and remove data, keys and kubeconfigs; logs stay. Safe to repeat."""
        if self._watcher is None or os.getpid() != self._owner:
            return
        try:
            end_daemons([*self._daemons.values()], self._watcher)
        finally:
            self._watcher.close()
            self._watcher = None
            self._held.close()
            with suppress(OSError):
                owned_folders.remove(self._state)
            atexit.unregister(self.close)

    def start_component(self, *names: str) -> None:
        """Start components that do not run, with the data that they had; wait until they serve.

        The API server does not serve without etcd, nor do the others without the API server.
        """
        for name in names:
            if self._daemon(name).leader is not None:
                raise RunError(where=name, what="is running", remedy="kill it first")
        assert self._watcher is not None
        for name in names:
            command = plane_components.build_command(name, self._plan)
            self._daemons[name].launch(command, _environment(), self._watcher)
        self._await_serving(names)

    def kill(self, *names: str) -> None:
        """SIGKILL these components, as close together as can be; returns when they are gone.

        One that is down already stays down.
        """
        assert self._watcher is not None
        end_daemons([self._daemon(name) for name in names], self._watcher)
        self._stopped.difference_update(names)

    def stop(self, *names: str) -> None:
        """SIGSTOP these components: they fall silent, with their connections open."""
        for name in names:
            daemon = self._daemon(name)
            self._stopped.add(name)
            if process_sets.stop_all(daemon.processes, limit_seconds=STOP_SECONDS_MAX):
                raise RunError(
                    where=name,
                    what=f"did not stop within {STOP_SECONDS_MAX:.0f} s",
                    remedy="see whether something else continues it",
                )

    def proceed(self, *names: str) -> None:
        """SIGCONT these components."""
        for name in names:
            process_sets.continue_all(self._daemon(name).processes)
            self._stopped.discard(name)

    def restore(self) -> None:
        """Continue what is stopped, start what is down, and wait until all serve."""
        self.proceed(*self._stopped.copy())
        for pair in ((ETCD, API_SERVER), CLIENTS):
            down = [name for name in pair if not self.processes(name)]
            self.kill(*down)  # one that ended by itself is still to be buried
            self.start_component(*down)
            self._await_serving(pair)

    def processes(self, name: str) -> tuple[int, ...]:
        """Ids of the component's living processes."""
        return self._daemon(name).processes()

    def is_serving(self, name: str) -> bool:
        """Whether the component answers that it is well."""
        self._daemon(name)
        # One that is stopped would take the whole limit of a question.
        return name not in self._stopped and plane_components.is_serving(
            name, self._plan.ports[name], self._address
        )

    def api_client(self, kubeconfig: Path | None = None) -> client.ApiClient:
        """A client of the official package: an administrator's, or for whom a kubeconfig stands."""
        return kubeconfigs.make_client(kubeconfig or self.kubeconfig)

    def user_kubeconfig(self, user: str, *, groups: Sequence[str] = ()) -> Path:
        """A kubeconfig for a user with a certificate, who may do what RBAC lets him and no more."""
        name = f"user-{next(self._numbers)}"
        files = self._authority.issue(name, user=user, groups=groups)
        return self._write_kubeconfig(name, user, kubeconfigs.certificate_credential(files))

    def service_account_kubeconfig(
        self, namespace: str, name: str, *, seconds: int = 86_400
    ) -> Path:
        """A kubeconfig with a token for a service account that exists, for so many seconds."""
        request = client.AuthenticationV1TokenRequest(
            spec=client.V1TokenRequestSpec(audiences=[], expiration_seconds=seconds)
        )
        with self.api_client() as api_client:
            answer = client.CoreV1Api(api_client).create_namespaced_service_account_token(
                name, namespace, request
            )
        assert answer.status is not None
        credential = kubeconfigs.token_credential(answer.status.token or "")
        return self._write_kubeconfig(f"account-{next(self._numbers)}", name, credential)

    def serving_certificate(self, *hosts: str) -> TestCertificate:
        """A certificate for a server of a test, say a webhook: `authority` is its CA bundle."""
        name = f"server-{next(self._numbers)}"
        return self._authority.issue(name, user=hosts[0], hosts=hosts)

    def ssl_context(self) -> ssl.SSLContext:
        """What an administrator's HTTPS client of another package needs."""
        context = ssl.create_default_context(cafile=str(self.authority))
        context.load_cert_chain(self._administrator.certificate, self._administrator.key)
        return context

    @property
    def _state(self) -> Path:
        return self.directory / "state"

    @property
    def _kubeconfigs(self) -> Path:
        return self._state / "kubeconfigs"

    def _make_plan(self, programs: Mapping[str, Path]) -> plane_components.ComponentPlan:
        hosts = {API_SERVER: self._address}
        names = (*CONTROL_PLANE, PEERS)
        ports = {name: self._hold_port(hosts.get(name, HOST)) for name in names}
        owned_folders.make(self._state, mode=0o700)
        keys = self._state / "certificates"
        self._authority = Authority.make(keys)
        known = dict.fromkeys((HOST, self._address, SERVER_ADDRESS, "localhost", *SERVER_NAMES))
        server = self._authority.issue(API_SERVER, user=API_SERVER, hosts=[*known])
        self._administrator = self._authority.issue("admin", user="admin", groups=[ADMINISTRATORS])
        grace, monitor = self._node_seconds
        return plane_components.ComponentPlan(
            store=self._state / "etcd",
            programs=programs,
            ports=ports,
            authority=self._authority.certificate,
            server=server,
            tokens=make_signing_keys(keys),
            kubeconfigs={name: self._kubeconfigs / f"{name}.yaml" for name in CLIENTS},
            node_grace_seconds=grace,
            node_monitor_seconds=monitor,
            arguments=self._arguments,
            address=self._address,
            kubelets=None if self._address == HOST else self._administrator,
        )

    def _make_daemon(self, name: str) -> Daemon:
        if self._group is None:
            return Daemon(name, self.logs, None)
        group = cgroups.Group(self._group.hierarchy, f"{self._group.name}/{name}")
        group.create()
        return Daemon(name, self.logs, group)

    def _write_own_kubeconfigs(self) -> None:
        credential = kubeconfigs.certificate_credential(self._administrator)
        self._write_kubeconfig("admin", "admin", credential)
        for name in CLIENTS:
            files = self._authority.issue(name, user=f"system:{name}")
            credential = kubeconfigs.certificate_credential(files)
            self._write_kubeconfig(name, f"system:{name}", credential)

    def _write_kubeconfig(self, name: str, user: str, credential: Mapping[str, str]) -> Path:
        return kubeconfigs.write_kubeconfig(
            self._kubeconfigs / f"{name}.yaml",
            server=self.server,
            authority=self.authority,
            user=user,
            credential=credential,
        )

    def _hold_port(self, address: str) -> int:
        try:
            holder = self._held.enter_context(hold_port(address))
        except OSError as error:
            raise RunError(
                where=address,
                what=f"no port can be held: {error.strerror}",
                remedy="see whether it has free ports",
            ) from error
        port: int = holder.getsockname()[1]
        return port

    def _await_serving(self, names: Iterable[str]) -> None:
        awaited = set(names)

        def are_settled() -> bool:
            awaited.difference_update([name for name in awaited if self.is_serving(name)])
            return not awaited or any(self._daemons[name].has_ended for name in awaited)

        process_sets.await_condition(
            are_settled, limit_seconds=START_SECONDS_MAX, interval_seconds=0.05
        )
        if awaited:
            name = max(awaited, key=lambda name: self._daemons[name].has_ended)
            is_over = self._daemons[name].has_ended
            ended = "it has ended" if is_over else f"not in {START_SECONDS_MAX:.0f} s"
            raise RunError(
                where=str(self._daemons[name].log),
                what=f"{name} does not serve: {ended}",
                remedy="read this log",
            )

    def _await_accounts(self) -> None:
        """The service accounts are the controller manager's first work that can be seen."""
        with self.api_client() as api_client:
            core = client.CoreV1Api(api_client)

            def has_account(namespace: str) -> bool:
                return bool(core.list_namespaced_service_account(namespace).items)

            there = process_sets.await_condition(
                lambda: all(map(has_account, _AWAITED_ACCOUNTS)), limit_seconds=START_SECONDS_MAX
            )
        if not there:
            raise RunError(
                where=str(self._daemons[CONTROLLER_MANAGER].log),
                what="the controller manager made no service accounts",
                remedy="read this log",
            )

    def _daemon(self, name: str) -> Daemon:
        self._check_names([name])
        daemon = self._daemons.get(name)
        if daemon is None:
            raise RunError(where="the control plane", what="is not running", remedy="start it")
        return daemon

    @staticmethod
    def _check_names(names: Iterable[str]) -> None:
        for name in names:
            cli_options.check_choice("component", name, CONTROL_PLANE)


def _environment() -> dict[str, str]:
    """Without what would change settings: etcd reads a variable for each of its options.

    Go collects garbage when a heap has grown fourfold, not twofold: heaps are small here.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if name != "KUBECONFIG" and not name.startswith("ETCD_")
    }
    return {"GOGC": "300", **kept}
