"""The progress of one load, and when its node last reported activity."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

from corral.bus.messages import InstallProgress
from corral.core.nodes.node import Node
from corral.core.replicas.load_jobs import ABSOLUTE_S, LoadProgress, LoadState, stall_window_s
from corral.core.replicas.staging import FileTransfer, combine
from corral.store.serving.load_job_rows import LoadJob
from corral.system import Clock

STARTING = "its process is starting"
ANSWERING = "it is tried with a small request"
STARTING_PHASE = "starting"


class LoadTracker:
    """The one mutable progress of a load. Its steps update it; the lease loop stores it."""

    def __init__(self, job: LoadJob, clock: Clock) -> None:
        self._clock = clock
        self.progress = LoadProgress(model=job.model, state=job.state, node=job.node_name)
        self.node_id = job.node_id
        self.weights_bytes: int | None = None
        self.least_window_s = 0.0
        """For a worker that reports no progress."""
        self._began_s = self._active_s = clock.monotonic_s()
        self._before = self._now = FileTransfer()
        self.changed = asyncio.Event()
        """Set at every step, so that the lease loop stores it early."""
        self.on_staged: Callable[[FileTransfer], None] | None = None
        """Called with the transfer of all files together whenever bytes have moved."""

    def show(self, state: LoadState, node: Node, *, reason: str = "") -> None:
        """Enter a step. Files that were staged before stay counted."""
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
        self.changed.set()
        self.note_activity()

    def on_progress(self, message: InstallProgress) -> None:
        """Apply what the worker reports about an install or a download."""
        self.note_activity()
        transfer = message.transfer
        if self.progress.state is LoadState.INSTALLING and message.phase == STARTING_PHASE:
            # The backend is installed. An engine that loads its model as it starts reports nothing until it serves.
            self.progress = replace(self.progress, state=LoadState.LOADING, reason=STARTING)
            self.changed.set()
        if message.corral is None or self.progress.state is not LoadState.STAGING:
            return
        if not transfer.bytes_done and transfer.bytes_total is None:
            return  # the worker only looked for files that are present
        self._show_transfer(
            replace(
                self._now,
                file_index=transfer.file_index if transfer.file_index is not None else self._now.file_index,
                files=transfer.total_files if transfer.total_files is not None else self._now.files,
                file_name=transfer.file_name or self._now.file_name,
                bytes_done=transfer.bytes_done or 0,
                bytes_total=transfer.bytes_total or 0,
            ),
            eta_s=transfer.eta_s,
        )

    def note_staged(self, transfer: FileTransfer) -> None:
        """Apply what this frontend has sent to the node."""
        self.note_activity()
        self._show_transfer(transfer, eta_s=None)

    def end_transfer(self) -> None:
        """These files have arrived. Further files are added to them."""
        self._before, self._now = combine(self._before, self._now), FileTransfer()

    def begin_second_hop(self) -> None:
        """The files are in shared storage, which is half the way: the node downloads them now."""
        self._now = replace(self._now, hop=2, hops=2)

    def note_activity(self) -> None:
        self._active_s = self._clock.monotonic_s()

    @property
    def quiet_s(self) -> float:
        return self._clock.monotonic_s() - self._active_s

    @property
    def window_s(self) -> float:
        """How long the current step may go without activity."""
        return max(self.least_window_s, stall_window_s(self.progress.state, self.weights_bytes))

    @property
    def is_stalled(self) -> bool:
        return self.quiet_s > self.window_s or self._clock.monotonic_s() - self._began_s > ABSOLUTE_S

    def _show_transfer(self, transfer: FileTransfer, *, eta_s: float | None) -> None:
        self._now = transfer
        whole = combine(self._before, transfer)
        self.progress = replace(
            self.progress,
            bytes_sent=whole.bytes_done,
            total_bytes=whole.bytes_total,
            file_index=whole.file_index,
            total_files=whole.files,
            eta_s=eta_s,
        )
        if self.on_staged is not None:
            self.on_staged(whole)
