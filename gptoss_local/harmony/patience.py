"""Limits the time to prepare a schema, and stops once its client is gone."""

import math
import threading
import time

LIMIT_S = 20.0
"""Schemas of real programs take milliseconds, and large ones, as a union of 1,000, seconds."""


class Patience:
    """Ends a time after it begins, or when it is stopped.

    Thread: any.
    """

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        self.limit_s = limit_s
        self._end_s = math.inf
        self._is_stopped = threading.Event()

    def begin(self) -> None:
        """Start the clock: the time that a request waits for a thread does not count."""
        self._end_s = time.monotonic() + self.limit_s

    @property
    def is_over(self) -> bool:
        return self._is_stopped.is_set() or time.monotonic() > self._end_s

    def stop(self) -> None:
        """Prepare no more, as the client has left."""
        self._is_stopped.set()
