"""The file of keys, which people may edit: names, hashes and limits, and the use of each.

It also has those of phones, and of browsers that keep the page open.
"""

import logging
import math
import secrets
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import date, timedelta
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from gptoss_local.base.errors import RateLimitError, UsageError
from gptoss_local.base.settings import HOSTED_TOOL
from gptoss_local.base.validation import in_words
from gptoss_local.base.whole_file import change_toml, read_text

if TYPE_CHECKING:
    from tomlkit import TOMLDocument

_log = logging.getLogger("gptoss")

_HEADER = "API keys of gptoss: `gptoss keys add NAME` prints a new key and writes its hash here."

_N_BROWSERS = 32
_BROWSER = timedelta(days=30)  # from its last use
_Limit = Annotated[int, msgspec.Meta(ge=1)] | None
_Tool = Annotated[str, msgspec.Meta(pattern=f"^{HOSTED_TOOL}$")]


class ApiKey(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A user's key, its limits (None: unlimited) and rights."""

    name: Annotated[str, msgspec.Meta(pattern=r"^[\w.@-]{1,40}$")]
    sha256: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}$")]
    requests_per_minute: _Limit = None
    tokens_per_minute: _Limit = None
    priority: Annotated[int, msgspec.Meta(ge=-100, le=100)] = 0  # the highest is answered first
    chats: bool = False  # it opens the owner's chats in the page, as a phone's does
    tools: tuple[_Tool, ...] = ()  # as the setting `api_tools` has them
    browser_until: date | None = None  # the last day of a browser that the owner let in


class _KeysFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    keys: list[ApiKey] = []


def hash_key(key: bytes) -> str:
    return sha256(key).hexdigest()


def read_keys(path: Path) -> list[ApiKey]:
    text = read_text(path, hint="`gptoss keys add NAME` makes it.")
    try:
        keys = msgspec.convert(tomllib.loads(text), _KeysFile).keys
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is not valid TOML: {error}") from error
    except msgspec.ValidationError as error:
        # Not quoted, as it may be the key itself.
        raise UsageError(f"{path}: {in_words(error)}") from error
    for what in ("name", "sha256"):
        values = [getattr(key, what) for key in keys]
        for value in values:
            if values.count(value) > 1:
                raise UsageError(f"{path}: two keys have the {what} '{value}'")
    return keys


def add_phone(path: Path) -> str:
    """Make a key that opens the owner's chats, named `phone`, `phone-2`, and so on."""
    return add_key(path, _free_name(path, "phone"), chats=True)


def add_browser(path: Path, word: str) -> str:
    """Make a key of a browser, and remove those that are over, or too many."""
    found = read_keys(path) if path.exists() else []
    until = {key.name: key.browser_until for key in found if key.browser_until}
    for n, name in enumerate(sorted(until, key=until.__getitem__), 1):
        if until[name] < date.today() or n <= len(until) - _N_BROWSERS + 1:
            remove_key(path, name)
    return add_key(path, _free_name(path, word), browser_until=date.today() + _BROWSER)


def _free_name(path: Path, word: str) -> str:
    taken = {key.name for key in read_keys(path)} if path.exists() else set()
    names = (word, *(f"{word}-{n}" for n in range(2, len(taken) + 3)))
    return next(name for name in names if name not in taken)


def add_key(path: Path, name: str, **fields: int | Sequence[str] | date | None) -> str:
    """Make a key with fields of `ApiKey`, and return it; only its hash is written."""
    if path.exists() and name in (key.name for key in read_keys(path)):
        raise UsageError(f"there is a key '{name}' already", hint=f"gptoss keys rm {name}")
    key = f"gptoss-{secrets.token_urlsafe(32)}"
    row: dict[str, Any] = {"name": name, "sha256": hash_key(key.encode())}
    row |= {field: value for field, value in fields.items() if value not in (None, ())}

    def put(document: "TOMLDocument") -> None:
        import tomlkit

        table = tomlkit.table()
        table.update(row)
        rows: Any = document.get("keys")
        if not rows:  # without the last one, tomlkit leaves a list that takes no table
            rows = document["keys"] = tomlkit.aot()
        rows.append(table)

    change_toml(path, put, read_keys, header=_HEADER)
    return key


def remove_key(path: Path, name: str) -> None:
    names = [key.name for key in read_keys(path)]
    if name not in names:
        hint = f"Keys: {', '.join(names)}." if names else ""
        raise UsageError(f"there is no key '{name}'", hint=hint)

    def remove(document: "TOMLDocument") -> None:
        rows: Any = document["keys"]
        del rows[names.index(name)]

    change_toml(path, remove, read_keys)


def _renew(path: Path, name: str) -> None:
    def put(document: "TOMLDocument") -> None:
        rows: Any = document["keys"]
        for row in rows:
            if row["name"] == name:
                row["browser_until"] = date.today() + _BROWSER

    change_toml(path, put, read_keys)


class Bucket:
    """An amount per minute, all of which may be taken at once."""

    def __init__(self, per_minute: int, now_s: Callable[[], float] = time.monotonic) -> None:
        self.per_minute, self._now_s = per_minute, now_s
        self._level, self._at_s = float(per_minute), now_s()

    def wait_s(self) -> float:
        self.take(0)
        return max(0.0, 1 - self._level) * 60 / self.per_minute

    def take(self, n: int) -> None:
        """Take `n`, even more than there are."""
        now_s = self._now_s()
        gained = (now_s - self._at_s) * self.per_minute / 60
        self._level, self._at_s = min(self._level + gained, float(self.per_minute)) - n, now_s


class KeyUse:
    def __init__(self) -> None:
        self.requests = Counter({"admitted": 0, "refused": 0})
        self.tokens = Counter({"prompt": 0, "generated": 0})
        self.buckets: dict[str, Bucket] = {}

    def follow(self, key: ApiKey) -> None:
        limits = {"requests": key.requests_per_minute, "tokens": key.tokens_per_minute}
        for what, per_minute in limits.items():
            known = self.buckets.pop(what, None)
            if known and known.per_minute == per_minute:
                self.buckets[what] = known
            elif per_minute is not None:
                self.buckets[what] = Bucket(per_minute)


class KeyLimits:
    """The keys of a file, and their users' remaining requests and tokens, in one event loop.

    A changed file is read again; while it is wrong, the earlier keys stay in force.
    """

    def __init__(self, path: Path, *, is_needed: bool = True) -> None:
        self._path = path
        self._sign = _sign_of(path)
        self.use: dict[str, KeyUse] = {}
        self._seen: dict[str, date] = {}  # when browsers were renewed, or it was tried
        self._follow(read_keys(path) if is_needed or path.exists() else [])

    def key_of(self, sent: bytes, *, is_browser: bool = False) -> ApiKey | None:
        self._reload()
        sent_hash, found = hash_key(sent), None
        for key in self._keys:  # all of them, so that the time says nothing
            if secrets.compare_digest(key.sha256, sent_hash):
                found = key
        until = found and found.browser_until
        return found if bool(until) == is_browser and (not until or until >= date.today()) else None

    def renew(self, name: str) -> None:
        """Let a browser that is used stay; the file is written once a day at most."""
        today = date.today()
        if self._seen.get(name) == today:
            return
        self._seen[name] = today
        if any(k.name == name and k.browser_until != today + _BROWSER for k in self._keys):
            try:
                _renew(self._path, name)
            except UsageError as error:
                _log.warning("the browser %s is not renewed: %s", name, error.message)

    def admit(self, name: str) -> None:
        use = self.use[name]
        waits_s = {what: bucket.wait_s() for what, bucket in use.buckets.items()}
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

    def charge(self, name: str, n_prompt: int, n_generated: int) -> None:
        """Charge an answer. Concurrent ones can overdraw; the next request waits for a refill."""
        use = self.use[name]
        use.tokens["prompt"] += n_prompt
        use.tokens["generated"] += n_generated
        if bucket := use.buckets.get("tokens"):
            bucket.take(n_prompt + n_generated)

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
            if not key.browser_until:
                self.use.setdefault(key.name, KeyUse()).follow(key)


def _sign_of(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
