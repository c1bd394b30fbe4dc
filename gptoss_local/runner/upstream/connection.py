"""HTTP to the addresses of one upstream: streams, health, and the meaning of faults."""

import asyncio
import math
import os
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterator
from contextlib import AbstractContextManager, aclosing, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import httpx2
import msgspec

from gptoss_local.base.bounded_answers import UNCOMPRESSED, bound
from gptoss_local.base.errors import (
    ContextOverflowError,
    GptOssError,
    ServerBusyError,
    UpstreamError,
    UsageError,
)
from gptoss_local.engine.protocol import block_hashes
from gptoss_local.models.catalog import UpstreamAddress
from gptoss_local.runner.upstream.wire import KINDS, AnswerChunk, error_text, read_chunk

_CONNECT_S = 5.0
_REST_S = 5.0  # that an address which failed is left alone, while others answer
_HEALTH_S = 5.0
_N_ERROR_BYTES = 65_536  # of a body that says why; more is not read
_N_TOLD_BYTES = 2 * 2**20  # PERF: 2 MiB of JSON take up to 50 MB
_N_LINE_BYTES = 4 * 2**20
_BUSY = (429, 503)
_N_BLOCK_TOKENS = 128  # more than gpt-oss's own system message, with which every prompt begins
_N_BLOCKS = 32_768  # that are remembered, of 4 million tokens. PERF: 5 MB
_ANSWER_TOKENS = 4096  # of a prompt, which are read again rather than next to one more answer
_TOO_LONG = re.compile(r"context (size|length|window)", re.IGNORECASE)  # vLLM, SGLang, llama-server


class UpstreamFault(Exception):
    """A request failed; `error` is what to raise if it is not tried again.

    `may_retry`: it may succeed elsewhere, or later, after `after_s` if the upstream says when.
    `is_of_replica`: the address works for no request.
    """

    def __init__(
        self,
        error: GptOssError,
        *,
        may_retry: bool = True,
        is_of_replica: bool = True,
        after_s: float = 0.0,
    ) -> None:
        super().__init__(error.message)
        self.error = error
        self.may_retry = may_retry
        self.is_of_replica = is_of_replica
        self.after_s = after_s


@dataclass(slots=True)
class UpstreamCall:
    """One HTTP request for an answer."""

    url: str  # of the upstream, without a path
    kind: str
    model: str  # its name there
    n_prompt: int
    n_resent: int  # times that the same was asked before
    headers: dict[str, str] = field(default_factory=dict)  # a follower may add some
    status: int | None = None  # None: no answer came
    n_generated: int = 0
    n_cached: int | None = None  # None: the upstream does not say


Follow = Callable[[UpstreamCall], AbstractContextManager[None]]

following: ContextVar[Follow | None] = ContextVar("following", default=None)
"""Follows the calls of this task, and of those that it starts."""


def followed(call: UpstreamCall) -> AbstractContextManager[None]:
    follow = following.get()
    return nullcontext() if follow is None else follow(call)


class Replica:
    """One address, with `n_outstanding` requests of ours."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/").removesuffix("/v1")
        self.n_outstanding = 0
        self.asked_s = 0.0
        self.failed_s: float | None = None  # on the monotonic clock; None: it answered at last

    @contextmanager
    def busy(self) -> Iterator[None]:
        self.asked_s = time.monotonic()
        self.n_outstanding += 1
        try:
            yield
        finally:
            self.n_outstanding -= 1


class UpstreamConnection:
    """An HTTP client of all addresses of one upstream, whose key is kept out of messages.

    Of equal engines a healthy one is asked: that has read most of the prompt, unless others have
    less to do. It is remembered by the hashes of the prompt's blocks, as an upstream sees tokens
    alone, whatever the dialect: messages would need a place of their own for each, and raw prompts
    have none. Thread: one event loop.
    """

    def __init__(self, name: str, address: UpstreamAddress) -> None:
        self._name = name
        self._address = address
        self._key = _key(name, address)
        self.replicas = [Replica(url) for url in address.urls]
        self._blocks: dict[int, Replica] = {}  # who read a block last; the least recent first
        self._checks: set[asyncio.Task[None]] = set()
        self._http = httpx2.AsyncClient(
            headers=UNCOMPRESSED | ({"Authorization": f"Bearer {self._key}"} if self._key else {}),
            event_hooks={"response": [_bound]},
            timeout=httpx2.Timeout(None, connect=_CONNECT_S),  # other waits have their own limits
            limits=httpx2.Limits(
                max_connections=None,
                max_keepalive_connections=20,
                keepalive_expiry=4.0,  # many servers close idle connections after 5 s
            ),
        )

    async def close(self) -> None:
        for check in self._checks:
            check.cancel()
        await self._http.aclose()

    def choose(self, prompt: list[int], tried: Collection[Replica] = ()) -> Replica:
        """Return the address to ask next: failed ones last, until a good health check.

        Then come those that were `tried` for this prompt.
        """
        if len(self.replicas) == 1:
            return self.replicas[0]
        for replica in self.replicas:
            if self._is_due(replica):
                replica.failed_s = time.monotonic()  # the next check comes as much later
                check = asyncio.get_running_loop().create_task(self._check(replica))
                self._checks.add(check)
                check.add_done_callback(self._checks.discard)
        hashes = list(block_hashes(prompt, _N_BLOCK_TOKENS))
        n_read: dict[Replica, int] = {}
        for n, block in enumerate(hashes, 1):
            if reader := self._blocks.get(block):
                n_read[reader] = n * _N_BLOCK_TOKENS

        def cost(r: Replica) -> tuple[float, bool, int, int, float]:
            n_tokens = _ANSWER_TOKENS * r.n_outstanding - n_read.get(r, 0)
            return r.failed_s or 0.0, r in tried, n_tokens, r.n_outstanding, r.asked_s

        best = min(self.replicas, key=cost)
        for block in hashes:
            self._blocks.pop(block, None)
            self._blocks[block] = best
        for block in list(self._blocks)[: max(0, len(self._blocks) - _N_BLOCKS)]:
            del self._blocks[block]
        return best

    def _is_due(self, replica: Replica) -> bool:
        if replica.failed_s is None or all(other.failed_s for other in self.replicas):
            return False
        return time.monotonic() - replica.failed_s > _REST_S

    async def _check(self, replica: Replica) -> None:
        if await self.is_well(replica):
            replica.failed_s = None

    async def is_well(self, replica: Replica) -> bool:
        url = replica.url + KINDS[self._address.kind].health
        try:
            async with asyncio.timeout(_HEALTH_S), self._http.stream("GET", url) as response:
                return response.is_success  # its body is not read
        except (httpx2.HTTPError, TimeoutError):
            return False

    async def n_ctx(self, replica: Replica) -> int | None:
        is_llama = self._address.kind == "llama-server"
        url = replica.url + KINDS[self._address.kind].about
        try:
            async with asyncio.timeout(_HEALTH_S):
                answer = (await self._http.get(url)).json()
            if is_llama:
                found = answer["default_generation_settings"]["n_ctx"]
            else:
                models, name = answer.get("data") or answer["models"], self._address.model
                mine = [m for m in models if name in (m.get("id"), m.get("name"))]
                (told,) = mine or models
                found = told.get("max_model_len") or told.get("context_length")
                found = found or told.get("details", {}).get("context_length")
        except httpx2.DecodingError as error:
            raise self._broken(error, replica) from error
        except (httpx2.HTTPError, TimeoutError, RecursionError, ValueError, LookupError):
            return None
        except (TypeError, AttributeError):  # JSON of another shape
            return None
        return found if type(found) is int and found > 0 else None

    async def stream(
        self, replica: Replica, body: dict[str, Any], n_logprobs: int | None, call: UpstreamCall
    ) -> AsyncGenerator[AnswerChunk, None]:
        """Yield an answer's chunks, or raise UpstreamFault; closing the iterator disconnects."""
        kind, wait_s = self._address.kind, self._address.first_token_s
        url = replica.url + KINDS[kind].path
        try:
            closing = {"Connection": "close"} if KINDS[kind].closes else {}
            headers = call.headers | closing
            request = self._http.build_request("POST", url, json=body, headers=headers)
            async with asyncio.timeout(wait_s):
                response = await self._http.send(request, stream=True)
            call.status = response.status_code
            try:
                if response.status_code != httpx2.codes.OK:
                    raise await self._refusal(response, replica)
                is_over = False
                async with aclosing(_lines(response)) as lines:
                    while data := await self._next(lines, wait_s):
                        if data == b"[DONE]":
                            break
                        chunk = read_chunk(kind, data, n_logprobs)
                        is_over = is_over or chunk.end is not None
                        if chunk.tokens:
                            wait_s = self._address.stall_s
                        yield chunk
                if not is_over:
                    told = UpstreamError(
                        f"{self._at(replica)} ended the answer before it was complete",
                        hint="Send the request again.",
                    )
                    raise UpstreamFault(told, is_of_replica=False)
            finally:
                await response.aclose()
        except TimeoutError as error:
            told = UpstreamError(
                f"{self._at(replica)} sent nothing for {wait_s:g} s",
                hint="first_token_s and stall_s in models.toml say how long to wait.",
            )
            # The same engine may still be at work on it: only another one is asked.
            raise UpstreamFault(told, may_retry=len(self._address.urls) > 1) from error
        except httpx2.HTTPError as error:
            raise UpstreamFault(self._broken(error, replica)) from error
        except UpstreamError as error:  # of a chunk: the same engine would send the same
            told = UpstreamError(self._without_key(error.message), hint=error.hint)
            has_others = len(self._address.urls) > 1
            raise UpstreamFault(told, may_retry=has_others, is_of_replica=False) from error

    async def _next(self, lines: AsyncIterator[bytes], wait_s: float) -> bytes | None:
        async with asyncio.timeout(wait_s):
            return await anext(lines, None)

    def _at(self, replica: Replica) -> str:
        return f"the upstream of '{self._name}' at {replica.url}"

    def _broken(self, error: httpx2.HTTPError, replica: Replica) -> UpstreamError:
        if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout):
            what = "does not answer"
        elif isinstance(error, httpx2.DecodingError):
            what = "answers what is not read"
        else:
            what = "broke off the connection"
        detail = re.sub(r"^\[Errno -?\d+\] ", "", str(error)) or type(error).__name__
        hint = f"`gptoss upstream test {self._name}` says how it is."
        return UpstreamError(f"{self._at(replica)} {what}: {detail}", hint=hint)

    async def _refusal(self, response: httpx2.Response, replica: Replica) -> UpstreamFault:
        status, why = response.status_code, await self._why(response)
        if status in _BUSY:
            return UpstreamFault(
                ServerBusyError(f"{self._at(replica)} is busy ({status}){why}"),
                is_of_replica=False,
                after_s=_retry_after_s(response),
            )
        if status in (401, 403):
            key = self._address.key_env
            told = UpstreamError(
                f"{self._at(replica)} refuses access ({status}){why}",
                hint=f"Is the key in {key} right?"
                if key
                else "Name a variable with the key: gptoss upstream add --key-env",
            )
            return UpstreamFault(told, may_retry=False, is_of_replica=False)
        if status >= 500:
            return UpstreamFault(UpstreamError(f"{self._at(replica)} failed ({status}){why}"))
        if _TOO_LONG.search(why):
            too_long = ContextOverflowError(f"{self._at(replica)} refuses the prompt{why}")
            return UpstreamFault(too_long, may_retry=False, is_of_replica=False)
        told = UpstreamError(
            f"{self._at(replica)} refuses the request ({status}){why}",
            hint=f"Is it {self._address.kind}, and is '{self._address.model}' its model?",
        )
        return UpstreamFault(told, may_retry=False, is_of_replica=False)

    async def _why(self, response: httpx2.Response) -> str:
        content = b""
        async with asyncio.timeout(_HEALTH_S):
            async for part in response.aiter_bytes():
                content += part
                if len(content) > _N_ERROR_BYTES:
                    break
        try:
            found = msgspec.json.decode(content)
            if isinstance(found, dict):
                found = found.get("error") or found
            text = error_text(found)
        except msgspec.DecodeError:
            text = content[:200].decode(errors="replace").strip()
        return f": {self._without_key(text)}" if text else ""

    def _without_key(self, text: str) -> str:
        return text.replace(self._key, "***") if self._key else text


async def silent_urls(name: str, address: UpstreamAddress) -> tuple[str, ...]:
    connection = UpstreamConnection(name, address)
    try:
        are_well = await asyncio.gather(*map(connection.is_well, connection.replicas))
    finally:
        await connection.close()
    return tuple(url for url, is_well in zip(address.urls, are_well, strict=True) if not is_well)


async def _bound(response: httpx2.Response) -> None:
    """Hook: bound the whole body; of a POST, which streams, each line is bounded."""
    bound(response, _N_TOLD_BYTES if response.request.method == "GET" else math.inf)


async def _lines(response: httpx2.Response) -> AsyncGenerator[bytes, None]:
    """Yield the data of server-sent events, each one line here, or raise UpstreamError.

    NOTE: httpx2's own lines end at U+2028, too, which may be in the text of an answer.
    """
    rest = b""
    async for part in response.aiter_bytes():
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            if data := _data(line):
                yield data
        if len(rest) > _N_LINE_BYTES:
            raise UpstreamError(f"the upstream sent what is not an event: {rest[:80]!r}")
    if data := _data(rest):
        yield data


def _data(line: bytes) -> bytes:
    """Return the data of a line; an unknown field counts as data, which is then refused."""
    is_other = line.startswith((b":", b"event:", b"id:", b"retry:"))
    return b"" if is_other else line.removeprefix(b"data:").strip()


def _key(name: str, address: UpstreamAddress) -> str:
    if not address.key_env:
        return ""
    key = os.environ.get(address.key_env, "").strip()
    if not key:
        raise UsageError(
            f"'{name}' needs a key, and the variable {address.key_env} is not set",
            hint="Set it where the server starts.",
        )
    if not (key.isascii() and key.isprintable()):
        raise UsageError(f"the variable {address.key_env} has what a header cannot hold")
    return key


def _retry_after_s(response: httpx2.Response) -> float:
    """Return the seconds of `Retry-After`; 0 without, or if it is a date."""
    try:
        return max(0.0, float(response.headers.get("retry-after", "")))
    except ValueError:
        return 0.0
