"""Keep values of several owners within one bound, without favouring the busiest."""

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

V = TypeVar("V")


class FairStore(Generic[V]):
    """Values by owner and id; safe for threads.

    Over the bound, the owner with the most bytes loses its least recently used value, so that no
    owner can push out all values of another.
    """

    def __init__(self, max_bytes: int, n_bytes_of: Callable[[V], int]) -> None:
        self._max_bytes = max_bytes
        self._n_bytes_of = n_bytes_of
        self._values: dict[str, OrderedDict[Hashable, V]] = {}  # the least recently used first
        self._n_bytes = Counter[str]()
        self._lock = threading.RLock()

    def get(self, owner: str, key: Hashable) -> V | None:
        with self._lock:
            values = self._values.get(owner)
            if values is None or key not in values:
                return None
            values.move_to_end(key)
            return values[key]

    def put(self, owner: str, key: Hashable, value: V) -> list[V]:
        """Keep a value; return the values dropped for it, maybe itself."""
        with self._lock:
            self.pop(owner, key)
            self._values.setdefault(owner, OrderedDict())[key] = value
            self._n_bytes[owner] += self._n_bytes_of(value)
            gone: list[V] = []
            while self._n_bytes.total() > self._max_bytes:
                most = max(self._n_bytes, key=self._n_bytes.__getitem__)
                oldest = next(iter(self._values[most]))
                gone += [self._values[most][oldest]]
                self.pop(most, oldest)
            return gone

    def pop(self, owner: str, key: Hashable) -> V | None:
        with self._lock:
            values = self._values.get(owner, OrderedDict())
            value = values.pop(key, None)
            if value is not None:
                self._n_bytes[owner] -= self._n_bytes_of(value)
            if not values:
                self._values.pop(owner, None)
                self._n_bytes.pop(owner, None)
            return value
