"""API keys of a file: the key of a request, and whether it may have another answer now.

Requests are charged on arrival, tokens on completion, so concurrent answers can overdraw the
bucket; the next request waits until it has refilled.
"""

import logging
import math
import secrets
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from gptoss_local.base.errors import RateLimitError, UsageError
from gptoss_local.runner.counters import AnswerRecord
from gptoss_local.server.keys import ApiKey, hash_key, read_keys

_log = logging.getLogger("gptoss")

_Sign = tuple[int, int, int]


class Bucket:
    """An amount per minute, all of which may be taken at once."""

    def __init__(self, per_minute: int, now_s: Callable[[], float] = time.monotonic) -> None:
        self.per_minute = per_minute
        self._now_s = now_s
        self._level = float(per_minute)
        self._at_s = now_s()

    def wait_s(self, n: int) -> float:
        """Return the seconds until `n` are there, 0 if they are."""
        self._flow()
        return max(0.0, n - self._level) * 60 / self.per_minute

    def take(self, n: int) -> None:
        """Take `n`, even more than there are."""
        self._flow()
        self._level -= n

    def resize(self, per_minute: int) -> None:
        """Change the limit; amounts taken stay taken."""
        self._flow()
        self._level = min(self._level + max(0, per_minute - self.per_minute), per_minute)
        self.per_minute = per_minute

    def _flow(self) -> None:
        now_s = self._now_s()
        gained = (now_s - self._at_s) * self.per_minute / 60
        self._level = min(self._level + gained, float(self.per_minute))
        self._at_s = now_s


class KeyUse:
    def __init__(self) -> None:
        self.requests = Counter({"admitted": 0, "refused": 0})
        self.tokens = Counter({"prompt": 0, "generated": 0})
        self.buckets: dict[str, Bucket] = {}

    def follow(self, key: ApiKey) -> None:
        limits = {"requests": key.requests_per_minute, "tokens": key.tokens_per_minute}
        for what, per_minute in limits.items():
            if per_minute is None:
                self.buckets.pop(what, None)
            elif what in self.buckets:
                self.buckets[what].resize(per_minute)
            else:
                self.buckets[what] = Bucket(per_minute)

    def charge(self, n_prompt: int, n_generated: int) -> None:
        self.tokens["prompt"] += n_prompt
        self.tokens["generated"] += n_generated
        if bucket := self.buckets.get("tokens"):
            bucket.take(n_prompt + n_generated)


class KeyLimits:
    """The keys of a file, and their users' remaining requests and tokens, in one event loop.

    A changed file is read again; while it is wrong, the earlier keys stay in force.
    """

    def __init__(self, path: Path, *, is_needed: bool = True) -> None:
        self._path = path
        self._sign = _sign_of(path)
        self.use: dict[str, KeyUse] = {}
        self._follow(read_keys(path) if is_needed or path.exists() else [])

    def key_of(self, sent: bytes) -> ApiKey | None:
        self._reload()
        sent_hash, found = hash_key(sent), None
        for key in self._keys:  # all of them, so that the time says nothing
            if secrets.compare_digest(key.sha256, sent_hash):
                found = key
        return found

    def admit(self, name: str) -> None:
        """Let a metered request in, and charge it to its key. Raises RateLimitError."""
        use = self.use[name]
        waits_s = {what: bucket.wait_s(1) for what, bucket in use.buckets.items()}
        if any(waits_s.values()):
            use.requests["refused"] += 1
            what = max(waits_s, key=waits_s.__getitem__)  # until then the others are free, too
            n, retry_after_s = use.buckets[what].per_minute, math.ceil(waits_s[what])
            raise RateLimitError(
                f"the API key '{name}' is over its limit of {what}: {n:,} per minute",
                hint=f"Try again in {retry_after_s} s.",
                retry_after_s=retry_after_s,
            )
        use.requests["admitted"] += 1
        if bucket_of_requests := use.buckets.get("requests"):
            bucket_of_requests.take(1)

    def charge(self, name: str, record: AnswerRecord) -> None:
        self.use[name].charge(record.n_prompt, record.n_generated)

    def _reload(self) -> None:
        sign = _sign_of(self._path)
        if sign == self._sign:
            return
        self._sign = sign
        try:
            self._follow(read_keys(self._path))
            _log.info("read %s again: %d keys", self._path, len(self._keys))
        except UsageError as error:
            _log.error("%s. The keys that were read before stay in force.", error.message)

    def _follow(self, keys: list[ApiKey]) -> None:
        self._keys = keys
        for key in keys:
            self.use.setdefault(key.name, KeyUse()).follow(key)


def _sign_of(path: Path) -> _Sign | None:
    """Return figures that change with a file; None if it cannot be found."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
