"""How far one load is, and when it last gave a sign of life."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

from corral.bus.messages import InstallProgress
from corral.core.nodes.node import Node
from corral.core.replicas.load_jobs import ABSOLUTE_S, LoadProgress, LoadState, stall_window_s
from corral.core.replicas.staging import Lot, shown
from corral.store.serving.load_job_rows import LoadJob
from corral.system import Clock

STARTING = "its process is being started"
STARTING_PHASE = "starting"


class LoadTracker:
    def __init__(self, job: LoadJob, clock: Clock) -> None:
        self._clock = clock
        self.progress = LoadProgress(model=job.model, state=job.state, node=job.node_name)
        self.node_id = job.node_id
        self.weights_bytes: int | None = None
        self._began_s = self._sign_s = clock.monotonic_s()
        self._before = self._now = Lot()
        self.stepped = asyncio.Event()
        """Set at every step, for whoever writes it down."""
        self.on_staged: Callable[[Lot], None] | None = None
        """Told of all files together, whenever some of them moved."""

    def show(self, state: LoadState, node: Node, *, reason: str = "") -> None:
        """Another step; the files that were staged stay counted."""
        self.node_id = node.id
        files = self.progress.total_files
        self.progress = LoadProgress(
            model=self.progress.model,
            state=state,
            node=node.name,
            file_index=files,
            total_files=files,
            reason=reason,
        )
        self.stepped.set()
        self.note_sign()

    def show_starting(self) -> None:
        """The backend is there. An engine that loads its model as it starts tells no more until it serves."""
        self.progress = replace(self.progress, state=LoadState.LOADING, reason=STARTING)
        self.stepped.set()

    def hear(self, message: InstallProgress) -> None:
        """The worker tells of what it fetches or installs."""
        self.note_sign()
        transfer = message.transfer
        if self.progress.state is LoadState.INSTALLING and message.phase == STARTING_PHASE:
            self.show_starting()
        if message.corral is None or self.progress.state is not LoadState.STAGING:
            return
        if not transfer.bytes_done and transfer.bytes_total is None:
            return  # it was only asked what is there
        self._show_lot(
            replace(
                self._now,
                file_index=transfer.file_index if transfer.file_index is not None else self._now.file_index,
                files=transfer.total_files if transfer.total_files is not None else self._now.files,
                file_name=transfer.file_name or self._now.file_name,
                bytes_there=transfer.bytes_done or 0,
                bytes_total=transfer.bytes_total or 0,
            ),
            eta_s=transfer.eta_s,
        )

    def note_staged(self, lot: Lot) -> None:
        """This frontend tells of what it sends."""
        self.note_sign()
        self._show_lot(lot, eta_s=None)

    def end_lot(self) -> None:
        """What moved is there; what follows comes on top of it."""
        self._before, self._now = shown(self._before, self._now), Lot()

    def begin_second_leg(self) -> None:
        """What moved is half there: the node fetches the same files now."""
        self._now = replace(self._now, leg=2, legs=2)

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

    def _show_lot(self, lot: Lot, *, eta_s: float | None) -> None:
        self._now = lot
        whole = shown(self._before, lot)
        self.progress = replace(
            self.progress,
            bytes_sent=whole.bytes_there,
            total_bytes=whole.bytes_total,
            file_index=whole.file_index,
            total_files=whole.files,
            eta_s=eta_s,
        )
        if self.on_staged is not None:
            self.on_staged(whole)
