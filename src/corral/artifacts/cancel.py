"""Cancellation of a running install. Every blocking step checks its token at least twice a second."""

import threading

from corral.artifacts.errors import Cancelled

SLICE_S = 0.25


class CancelToken:
    """One per operation. A person's cancel discards what was fetched, a shutdown keeps it for the next start.

    A token with a parent is cancelled by either: one failing layer stops its siblings and nothing else.
    """

    def __init__(self, parent: "CancelToken | None" = None) -> None:
        self._parent = parent
        self._set = threading.Event()
        self._keep_partials = True
        self._why = ""

    def cancel(self, why: str = "cancelled by request", *, keep_partials: bool = False) -> None:
        if not self._set.is_set():
            self._why = why
            self._keep_partials = keep_partials
            self._set.set()

    @property
    def cancelled(self) -> bool:
        return self._set.is_set() or (self._parent is not None and self._parent.cancelled)

    @property
    def requested(self) -> bool:
        """Whether the whole operation was cancelled, not only this part because a sibling failed."""
        return self._set.is_set() if self._parent is None else self._parent.requested

    @property
    def discards(self) -> bool:
        """Whether a user cancelled, so that nothing that was fetched is needed any more."""
        own = self._set.is_set() and not self._keep_partials
        return own or (self._parent is not None and self._parent.discards)

    def check(self) -> None:
        if self._parent is not None:
            self._parent.check()
        if self._set.is_set():
            raise Cancelled(f"The artifact was not installed: {self._why}.", keep_partials=self._keep_partials)

    def wait(self, seconds: float) -> None:
        """Sleeps. Raises as soon as the token is cancelled."""
        while seconds > 0 and not self.cancelled:
            self._set.wait(min(seconds, SLICE_S))
            seconds -= SLICE_S
        self.check()
