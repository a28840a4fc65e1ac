"""How far one load is, and when it last gave a sign of life."""

from dataclasses import replace

from corral.bus.messages import InstallProgress
from corral.core.load_jobs import ABSOLUTE_S, LoadProgress, LoadState, stall_window_s
from corral.core.nodes import Node
from corral.store.load_job_rows import LoadJob
from corral.system import Clock


class Headway:
    def __init__(self, job: LoadJob, clock: Clock) -> None:
        self._clock = clock
        self.progress = LoadProgress(model=job.model, state=job.state, node=job.node_name)
        self.node_id = job.node_id
        self.weights_bytes: int | None = None
        self._began_s = self._sign_s = clock.monotonic_s()

    def show(self, state: LoadState, node: Node, *, total_files: int = 0) -> None:
        self.node_id = node.id
        self.progress = LoadProgress(
            model=self.progress.model,
            state=state,
            node=node.name,
            total_files=total_files or self.progress.total_files,
        )
        self.note_sign()

    def hear(self, message: InstallProgress) -> None:
        self.note_sign()
        extras = message.corral
        if extras is None or self.progress.state is not LoadState.STAGING:
            return
        self.progress = replace(
            self.progress,
            bytes_sent=extras.bytes_done,
            total_bytes=extras.bytes_total or 0,
            eta_s=extras.eta_s,
        )

    def note_staged(self, files: int, there: int, total: int) -> None:
        self.note_sign()
        self.progress = replace(self.progress, total_files=files, bytes_sent=there, total_bytes=total)

    def note_sign(self) -> None:
        self._sign_s = self._clock.monotonic_s()

    @property
    def quiet_s(self) -> float:
        return self._clock.monotonic_s() - self._sign_s

    @property
    def window_s(self) -> float:
        """How long silence is patience in the present step."""
        return stall_window_s(self.progress.state, self.weights_bytes)

    @property
    def is_stalled(self) -> bool:
        return self.quiet_s > self.window_s or self._clock.monotonic_s() - self._began_s > ABSOLUTE_S
