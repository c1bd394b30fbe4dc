"""Tells callers apart, and decides which endpoints each may use; docs/api.md has the table."""

import asyncio
import logging
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from hashlib import blake2b, sha256
from pathlib import Path
from typing import Literal, NamedTuple

from starlette.datastructures import Headers
from starlette.requests import Request

from gptoss_local.api.gptoss import ClientUse, PageToken
from gptoss_local.base.errors import (
    ForbiddenError,
    GptOssError,
    ServerBusyError,
    UnauthorizedError,
    UsageError,
)
from gptoss_local.base.printable import printable
from gptoss_local.base.settings import Settings
from gptoss_local.base.whole_file import write_whole
from gptoss_local.engine.interface import cache_salt
from gptoss_local.engine.interface import caller as served_in_turn
from gptoss_local.runner.counters import AnswerRecord
from gptoss_local.runner.growth import may_reload
from gptoss_local.server.keys import KeyLimits, KeyUse, add_browser, add_phone
from gptoss_local.server.origin import is_loopback, is_own_origin

_log = logging.getLogger("gptoss")

Kind = Literal["owner", "page", "phone", "key", "anonymous"]
Level = Literal["open", "key", "models", "chat", "page", "owner"]

_LINK_S = 3600.0  # for which a link of `gptoss web` may be opened
_LOOK_S = 0.15
_BROWSERS = ("Edg", "OPR", "Firefox", "Chrome", "Safari")  # as programs say what they are
_MAY_USE: Mapping[Level, frozenset[Kind]] = {
    "open": frozenset(("owner", "page", "phone", "key", "anonymous")),
    "key": frozenset(("owner", "page", "phone", "key")),
    "models": frozenset(("owner", "page")),
    "chat": frozenset(("owner", "page", "phone")),
    "page": frozenset(("owner", "page")),
    "owner": frozenset(("owner",)),
}
_OPEN_WITHOUT_KEYS: frozenset[Level] = frozenset(("key", "models"))  # as Ollama's are
OWN_ORIGIN: frozenset[Level] = frozenset(("chat", "page", "owner"))
"""No page of another origin may use these, even with a key."""


class Caller(NamedTuple):
    """The sender of a request, with its key's name, priority and tools.

    Its kind is `owner` with GPTOSS_API_KEY or the secret of this account; `page`: our page in a
    browser that the owner let in; `key`: with a key of the keys' file; `phone`: with such a key
    that may open the owner's chats; `anonymous`: without any of them.
    """

    kind: Kind = "anonymous"
    name: str = ""
    priority: int = 0
    tools: tuple[str, ...] = ()
    program: str = ""  # the first word of its `User-Agent`
    is_here: bool = False  # it connects from this machine

    @property
    def may_work(self) -> bool:
        """Return whether it may let a model work in a folder of this machine."""
        return self.is_here and self.kind in _MAY_USE["page"]

    @property
    def has_users_key(self) -> bool:
        return self.kind in ("key", "phone")

    @property
    def account(self) -> str:
        """Return the owner or a key, whose requests share what they store; empty for others."""
        if self.kind in ("owner", "page"):
            return "owner"
        return f"key {self.name}" if self.has_users_key else ""

    @property
    def right(self) -> int:
        """Return the caller's precedence: see `BoundedProtocol`."""
        return 2 if self.kind in _MAY_USE["chat"] else int(self.has_users_key)


class Lease:
    """A caller's right to an answer; `is_doubted` after one look that missed it."""

    def __init__(self, request: Request, level: Level) -> None:
        self.request, self.level = request, level
        self.needs: Callable[[Caller], bool] = lambda _: True
        self.is_doubted = False


class _Link(NamedTuple):
    made_s: float
    is_for_phone: bool


_N_CLIENTS, _N_NAME = 32, 40  # programs that are told apart, characters of a name
_caller: ContextVar[Caller | None] = ContextVar("caller", default=None)


class Access:
    """Tells callers apart, in one event loop.

    `secret` proves a program of the server's account, `page_token` a browser that the owner let in
    over a network or where the file of keys cannot be written.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._limits = KeyLimits(settings.keys_path, is_needed=settings.api_keys_file is not None)
        self._has_keys = bool(settings.api_key or settings.api_keys_file)
        self.secret, self.page_token = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        self._owners = [key for key in (settings.api_key, self.secret) if key]
        self._links: dict[str, _Link] = {}
        self._clients: dict[str, ClientUse] = {}
        self._leases: set[Lease] = set()

    def caller(self, request: Request) -> Caller:
        headers = request.headers
        sent = _sent_keys(headers)
        if any(_is_same(key, owner) for key in sent for owner in self._owners):
            return Caller("owner")
        token = headers.get("x-gptoss-token", "")
        if _is_same(token, self.page_token):
            return Caller("page")
        if token and is_loopback(_reached(request)):
            browser = self._limits.key_of(token.encode(), is_browser=True)
            if browser is not None:
                return Caller("page", browser.name)
        user = next(filter(None, (self._limits.key_of(key.encode()) for key in sent)), None)
        if user is None:
            return Caller()
        return Caller("phone" if user.chats else "key", user.name, user.priority, user.tools)

    @contextmanager
    def admitted(self, request: Request, level: Level, *, is_metered: bool) -> Iterator[None]:
        """Let a request in, as `current_caller`, or refuse it; `watch` ends it with its right."""
        headers = request.headers
        if level in OWN_ORIGIN:
            origin = headers.get("origin", "")
            if origin and not is_own_origin(origin, headers.get("host", "")):
                raise ForbiddenError("pages of other origins may not use this")
        caller = self.caller(request)
        connection = getattr(request.state, "connection", None)  # None below another server
        if connection is not None:
            connection.right = caller.right
            if not (connection.has_place or caller.right > 1):
                raise ServerBusyError("server busy, please try again: too many connections")
        if not self._may(caller, level, request):
            raise self._refusal(caller, level)
        is_here = request.client is not None and is_loopback(request.client.host)
        _caller.set(caller._replace(program=_program(headers), is_here=is_here))
        host, port = request.client or ("", 0)  # its places in line: by account, by connection
        served_in_turn.set((caller.account or f"address {host}", f"{host}:{port}"))
        cache_salt.set(b"" if self._settings.shared_prefixes else _salt_of(caller))
        may_reload.set(caller.kind != "key")
        if caller.kind == "page" and caller.name:
            self._limits.renew(caller.name)
        if caller.has_users_key and is_metered:
            self._limits.admit(caller.name)
        lease = request.state.lease = Lease(request, level)
        if caller.account and connection is not None:  # others have no right that could be taken
            self._leases.add(lease)
        try:
            yield
        finally:
            self._leases.discard(lease)

    async def watch(self) -> None:
        """End requests whose callers lose their right, as if the clients had left.

        Two looks must agree, as an editor may have written half of the file of keys at one.
        """
        while True:
            await asyncio.sleep(_LOOK_S)
            for lease in list(self._leases):
                try:
                    is_lost = not self._lasts(lease)
                except Exception:
                    _log.exception("internal error in a look at who may do what")
                    is_lost = True
                if is_lost and lease.is_doubted:
                    lease.request.state.connection.abort()
                lease.is_doubted = is_lost

    def _lasts(self, lease: Lease) -> bool:
        caller = self.caller(lease.request)
        may = bool(caller.account) and self._may(caller, lease.level, lease.request)
        return may and lease.needs(caller)

    def _may(self, caller: Caller, level: Level, request: Request) -> bool:
        is_elsewhere = is_loopback(self._settings.host) and not is_loopback(_reached(request))
        is_open = level in _OPEN_WITHOUT_KEYS and not (self._has_keys or is_elsewhere)
        return is_open or caller.kind in _MAY_USE[level]

    def charge(self, record: AnswerRecord) -> None:
        """Charge a finished answer to the program and the key that asked for it."""
        caller = current_caller()
        if record.usage is not None:
            is_known = caller.program in self._clients or len(self._clients) < _N_CLIENTS
            name = caller.program if is_known else "others"
            use = self._clients.setdefault(name, ClientUse(name))
            use.n_prompt += record.usage.n_prompt
            use.n_cached += record.usage.n_cached
        if caller.has_users_key:
            self._limits.charge(caller.name, record.n_prompt, record.n_generated)

    @property
    def clients(self) -> list[ClientUse]:
        return sorted(self._clients.values(), key=lambda use: -use.n_prompt)

    def use_of_keys(self) -> Mapping[str, KeyUse]:
        use, caller = self._limits.use, current_caller()
        return {caller.name: use[caller.name]} if caller.has_users_key else use

    @contextmanager
    def secret_in_file(self) -> Iterator[None]:
        """Keep the secret where this account's programs find it, while the server runs."""
        path = self._settings.owner_secret_path
        try:
            path.unlink(missing_ok=True)  # a mode that another file has had is not kept
            write_whole(path, self.secret)
        except (OSError, UsageError) as error:
            _log.warning("commands need GPTOSS_API_KEY, as this account's secret: %s", error)
        try:
            yield
        finally:
            with suppress(OSError):
                if path.read_text() == self.secret:  # and not of a server that followed
                    path.unlink()

    def new_link(self, *, is_for_phone: bool = False) -> str:
        """Return a secret with which one browser can get the page's token or a key, once."""
        link = secrets.token_urlsafe(32)
        self._links = self._fresh_links() | {link: _Link(time.monotonic(), is_for_phone)}
        return link

    def open_link(self, request: Request, link: str) -> PageToken:
        """Exchange a link, once, for a browser's token or a phone's key."""
        self._links = self._fresh_links()
        found = next((each for each in self._links if _is_same(each, link)), None)
        if found is None:
            raise UnauthorizedError(
                "this link has been used, or is too old", hint="`gptoss web` opens a new one."
            )
        is_for_phone = self._links.pop(found).is_for_phone
        if _is_other_account(request.scope.get("client"), request.scope.get("server")):
            raise ForbiddenError(
                "another account of this machine has opened the link of `gptoss web`",
                hint="It was refused. `gptoss web` opens a new one.",
            )
        path = self._settings.keys_path
        if is_for_phone:
            return PageToken(key=add_phone(path))
        if not is_loopback(_reached(request)):
            return PageToken(self.page_token)
        if self.caller(request).kind == "page":  # one key a browser
            return PageToken(request.headers["x-gptoss-token"])
        agent = request.headers.get("user-agent", "")
        try:
            words = (word.lower() for word in _BROWSERS if f"{word}/" in agent)
            return PageToken(add_browser(path, next(words, "browser")))
        except UsageError as error:
            _log.warning("a browser is let in until the server ends: %s", error.message)
            return PageToken(self.page_token)

    def _fresh_links(self) -> dict[str, _Link]:
        oldest_s = time.monotonic() - _LINK_S
        return {text: link for text, link in self._links.items() if link.made_s > oldest_s}

    def end_phone_links(self) -> None:
        self._links = {k: link for k, link in self._links.items() if not link.is_for_phone}

    def _refusal(self, caller: Caller, level: Level) -> GptOssError:
        if caller.kind == "phone":
            return ForbiddenError(
                "a phone may chat, and change nothing else",
                hint="Do this on the server's machine, with `gptoss` or `gptoss web`.",
            )
        if caller.kind == "anonymous" and level in _OPEN_WITHOUT_KEYS:
            return UnauthorizedError(
                "the API key is missing or wrong",
                hint="Send it as 'Authorization: Bearer KEY'.",
            )
        if level in ("chat", "page") and caller.kind == "anonymous":
            hint = "Open the page by `gptoss web`; programs send what `gptoss keys owner` prints."
        else:
            hint = "Send GPTOSS_API_KEY, or what `gptoss keys owner` prints, as the API key."
        return UnauthorizedError("this is for the owner of the server", hint=hint)


def current_caller() -> Caller:
    """Return the caller of the request that this task works for; tasks inherit it."""
    return _caller.get() or Caller()


def owner_of(request: Request) -> str:
    """Return an id for the owner of a request's answers, even where no keys are needed."""
    keys = "\n".join(_sent_keys(request.headers))
    return current_caller().account or sha256(keys.encode()).hexdigest()


def _is_other_account(client: tuple[str, int] | None, server: tuple[str, int] | None) -> bool:
    """Return whether another account of this machine, except root, holds the client's end.

    Only Linux tells. Every account can read command lines, and so a link in one.
    """
    if client is None or server is None or not hasattr(os, "getuid"):
        return False
    here, there = f":{client[1]:04X}", f":{server[1]:04X}"
    uids = {0, os.getuid()}
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        with suppress(OSError):
            for line in table.read_text().splitlines()[1:]:
                _, local, remote, *_, uid = line.split()[:8]
                if local.endswith(here) and remote.endswith(there):
                    uids.add(int(uid))
    return len(uids - {0, os.getuid()}) > 0


def _reached(request: Request) -> str:
    return (request.scope.get("server") or ("", None))[0]


def _salt_of(caller: Caller) -> bytes:
    """Return the salt of a caller's cached prefixes; page and phones share the owner's."""
    name = "owner" if caller.kind in _MAY_USE["chat"] else caller.account
    return blake2b(name.encode(), digest_size=16).digest()


def _is_same(sent: str, known: str) -> bool:
    return bool(sent) and secrets.compare_digest(sent.encode(), known.encode())


def _sent_keys(headers: Headers) -> list[str]:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    bearer = token.strip() if scheme.lower() == "bearer" else ""
    return [key for key in (bearer, headers.get("x-api-key", "")) if key]


def _program(headers: Headers) -> str:
    word = headers.get("user-agent", "").replace("/", " ").partition(" ")[0]
    return printable(word)[:_N_NAME] or "unnamed"
