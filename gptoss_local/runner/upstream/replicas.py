"""Equal engines at several addresses, of which the least busy healthy one is asked."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager

_REST_S = 5.0  # that an address which failed is left alone, while others answer


class Replica:
    """One address, with `n_outstanding` requests of ours."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/").removesuffix("/v1")
        self.n_outstanding = 0
        self.failed_s: float | None = None  # on the monotonic clock; None: it answered at last

    @contextmanager
    def busy(self) -> Iterator[None]:
        self.n_outstanding += 1
        try:
            yield
        finally:
            self.n_outstanding -= 1


class Replicas:
    """All addresses of one model. Thread: one event loop."""

    def __init__(
        self, urls: tuple[str, ...], is_well: Callable[[Replica], Coroutine[None, None, bool]]
    ) -> None:
        self.all = [Replica(url) for url in urls]
        self._is_well = is_well
        self._checks: set[asyncio.Task[None]] = set()

    @property
    def n_outstanding(self) -> int:
        return sum(replica.n_outstanding for replica in self.all)

    def choose(self) -> Replica:
        """Return the address to ask next: failed ones last, until a good health check."""
        for replica in self.all:
            if self._is_due(replica):
                replica.failed_s = time.monotonic()  # the next check comes as much later
                check = asyncio.get_running_loop().create_task(self._check(replica))
                self._checks.add(check)
                check.add_done_callback(self._checks.discard)
        return min(self.all, key=lambda r: (r.failed_s or 0.0, r.n_outstanding))

    def stop(self) -> None:
        for check in self._checks:
            check.cancel()

    async def _check(self, replica: Replica) -> None:
        if await self._is_well(replica):
            replica.failed_s = None

    def _is_due(self, replica: Replica) -> bool:
        if replica.failed_s is None or all(other.failed_s for other in self.all):
            return False
        return time.monotonic() - replica.failed_s > _REST_S
