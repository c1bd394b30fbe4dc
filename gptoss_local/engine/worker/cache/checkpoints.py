"""Keep windows in host memory: contents of the sliding layers after a prefix, to return to it.

A window has 3 MB on gpt-oss-20b. It belongs to token ids, not to a slot: any slot that has the
other layers' cells can take it.
"""

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b

from gptoss_local.engine.llama import State

# A message's end is worth as much as another point that was used so many checkpoints later: people
# return to messages.
_BOUNDARY_BONUS = 64


@dataclass(slots=True, eq=False)
class PrefixCheckpoint:
    """The window after the first `n_tokens` of some conversation."""

    n_tokens: int
    window: State
    is_boundary: bool
    last_use: int


class Checkpoints:
    """Checkpoints by salt and tokens before them; over `max_bytes` the least recently used goes."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._by_digest: dict[bytes, PrefixCheckpoint] = {}
        self._clock = 0
        self.n_bytes = 0

    def __len__(self) -> int:
        return len(self._by_digest)

    @property
    def is_enabled(self) -> bool:
        return self._max_bytes > 0

    def has(self, tokens: "array[int]", n_tokens: int, salt: bytes) -> bool:
        """Return whether there is one, which counts as a use."""
        checkpoint = self._by_digest.get(next(_digests(tokens, [n_tokens], salt)))
        if checkpoint is not None:
            self._use(checkpoint)
        return checkpoint is not None

    def add(
        self,
        tokens: "array[int]",
        n_tokens: int,
        window: State,
        *,
        is_boundary: bool,
        salt: bytes,
    ) -> None:
        digest = next(_digests(tokens, [n_tokens], salt))
        if digest in self._by_digest or window.nbytes > self._max_bytes:
            return
        checkpoint = PrefixCheckpoint(n_tokens, window, is_boundary, 0)
        self._use(checkpoint)
        self._by_digest[digest] = checkpoint
        self.n_bytes += window.nbytes
        while self.n_bytes > self._max_bytes:
            self._evict()

    def along(self, tokens: "array[int]", n_max: int, salt: bytes) -> list[PrefixCheckpoint]:
        """Return the checkpoints within `n_max` tokens, shortest first. PERF: 0.2 ms for 30k."""
        lengths = sorted({c.n_tokens for c in self._by_digest.values() if c.n_tokens <= n_max})
        found = (self._by_digest.get(digest) for digest in _digests(tokens, lengths, salt))
        return [checkpoint for checkpoint in found if checkpoint is not None]

    def use(self, checkpoints: Iterable[PrefixCheckpoint]) -> None:
        for checkpoint in checkpoints:
            self._use(checkpoint)

    def check(self) -> list[str]:
        n_bytes = sum(c.window.nbytes for c in self._by_digest.values())
        if n_bytes != self.n_bytes or n_bytes > self._max_bytes:
            return [f"checkpoints of {n_bytes} bytes, booked {self.n_bytes} of {self._max_bytes}"]
        return []

    def _use(self, checkpoint: PrefixCheckpoint) -> None:
        self._clock += 1
        checkpoint.last_use = self._clock

    def _evict(self) -> None:
        digest = min(self._by_digest, key=lambda d: _value(self._by_digest[d]))
        self.n_bytes -= self._by_digest.pop(digest).window.nbytes


def _value(checkpoint: PrefixCheckpoint) -> int:
    return checkpoint.last_use + _BOUNDARY_BONUS * checkpoint.is_boundary


def _digests(tokens: "array[int]", lengths: Iterable[int], salt: bytes) -> Iterator[bytes]:
    """Yield a digest of each prefix; `lengths` must grow."""
    digest, done = blake2b(digest_size=16, salt=salt), 0
    with memoryview(tokens) as view:
        for n_tokens in lengths:
            digest.update(view[done:n_tokens])
            done = n_tokens
            yield digest.digest()
