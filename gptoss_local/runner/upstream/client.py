"""Remote engines as one of ours: `Upstream`, over HTTP. Thread: one event loop.

They do not know our grammars of tokens with harmony's tags, so answers are held to them here.
"""

import asyncio
import functools
import itertools
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

import msgspec

from gptoss_local.base.errors import ContextOverflowError, UpstreamError, UsageError
from gptoss_local.base.formats.o200k import VOCAB_SIZE
from gptoss_local.base.types import SamplingParams
from gptoss_local.engine.interface import cache_salt
from gptoss_local.engine.protocol import Finished, Generate, Loaded, Prefilled, Stats, Tokens
from gptoss_local.harmony.vocabulary import Vocabulary
from gptoss_local.models.catalog import UpstreamAddress
from gptoss_local.runner.upstream.answer import UpstreamAnswer, stop_token_of
from gptoss_local.runner.upstream.connection import (
    Replica,
    UpstreamCall,
    UpstreamConnection,
    UpstreamFault,
    followed,
)
from gptoss_local.runner.upstream.wire import KINDS, N_CTX, AnswerChunk, request_body


class Gaps:
    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._n_seen = 0

    def fill(self, chunk: AnswerChunk) -> AnswerChunk:
        """Return a chunk with the tokens left out before it, unless the limit cut them off."""
        if not chunk.tokens or chunk.n_total is None:
            return chunk
        n_missing = chunk.n_total - self._n_seen - len(chunk.tokens)
        self._n_seen = chunk.n_total
        if n_missing <= 0:
            return chunk
        if chunk.logprobs:
            raise UpstreamError(
                "llama-server sends no log-probabilities of parts of a character",
                hint="Leave out logprobs, or use a model of this machine.",
            )
        return msgspec.structs.replace(
            chunk, tokens=_tokens_of(chunk.text, chunk.tokens[-1], n_missing + 1, self._vocabulary)
        )


def _tokens_of(text: str, last: int, n: int, vocabulary: Vocabulary) -> list[int]:
    """Return `n` tokens with this text and a known last one, split as usual, or the first that fit.

    Replaced bytes that are not UTF-8 fit nothing.
    """
    usual = vocabulary.encode(text)
    if len(usual) == n and usual[-1] == last:
        return usual
    head = text.encode().removesuffix(vocabulary.bytes_of(last))
    found = _split(head, n - 1, _ids(vocabulary))
    return usual if found is None else [*found, last]


def _split(text: bytes, n: int, ids: dict[bytes, int]) -> list[int] | None:
    if not n:
        return None if text else []
    for end in range(len(text), 0, -1):
        if (token := ids.get(text[:end])) is not None:
            rest = _split(text[end:], n - 1, ids)
            if rest is not None:
                return [token, *rest]
    return None


@functools.lru_cache(1)
def _ids(vocabulary: Vocabulary) -> dict[bytes, int]:
    return {text: token for token, text in enumerate(vocabulary.token_bytes)}


_N_TRIES = 3  # of each request, or one for each address if these are more
_BACKOFF_S = 0.25  # before the second try, and twice as long before each further one
_MAX_WAIT_S = 5.0  # for an upstream that says when to come again


class Upstream:
    """Remote engines of one model. Use `connect()`, or the first answer is unchecked."""

    def __init__(
        self, name: str, address: UpstreamAddress, vocabulary: Vocabulary, vocabulary_file: Path
    ) -> None:
        self._name = name
        self.address = address
        self._vocabulary = vocabulary
        self._closer = functools.partial(stop_token_of, vocabulary)
        self._vocabulary_file = vocabulary_file
        self._connection = UpstreamConnection(name, address)
        self._seq_ids = itertools.count(1)
        self._answers: dict[int, UpstreamAnswer] = {}
        self._n_prefilled = self._n_decoded = self._n_cached = 0
        self._is_closed = False
        self.loaded = Loaded(
            n_ctx=address.n_ctx or N_CTX,
            n_ctx_train=address.n_ctx or N_CTX,
            n_vocab=VOCAB_SIZE,
            size_bytes=0,
            has_gpu=False,
            n_seq=0,
            buffer_bytes={},
        )

    async def connect(self, probe: list[int], expected: set[int]) -> None:
        """Ask for the context, and check by one token that the vocabulary is gpt-oss's.

        Every gpt-oss continues `probe` with an expected token. May raise ServerBusyError.
        """
        asked = Generate(prompt=probe, sampling=SamplingParams(temperature=0), max_tokens=1)
        tokens: list[int] = []
        async for chunk in self._chunks(asked):
            tokens += chunk.tokens
        if not tokens or tokens[0] not in expected:
            raise UpstreamError(
                f"'{self._name}' does not have the vocabulary of gpt-oss: the upstream continues "
                f"a test with {tokens[:1] or 'nothing'}",
                hint="Only gpt-oss models can be used; is `model` the right one?",
            )
        if not self.address.n_ctx:
            replica = min(self._connection.replicas, key=lambda each: each.failed_s or 0.0)
            if n_ctx := await self._connection.n_ctx(replica):
                n_ctx = min(n_ctx, N_CTX)
                self.loaded = msgspec.structs.replace(self.loaded, n_ctx=n_ctx, n_ctx_train=n_ctx)

    @property
    def is_alive(self) -> bool:
        return not self._is_closed

    @property
    def n_active(self) -> int:
        return sum(replica.n_outstanding for replica in self._connection.replicas)

    async def generate(
        self, request: Generate
    ) -> AsyncGenerator[Prefilled | Tokens | Finished, None]:
        """Yield events as they arrive, Finished last; closing the iterator cancels."""
        self._check(request.n_logprobs)
        n_prompt, n_ctx = len(request.prompt), self.loaded.n_ctx
        if n_prompt >= n_ctx:
            raise ContextOverflowError(f"the prompt has {n_prompt} tokens, and the context {n_ctx}")
        seq_id = next(self._seq_ids)
        most = n_ctx - n_prompt
        asked = msgspec.structs.replace(
            request,
            max_tokens=most if request.max_tokens is None else min(request.max_tokens, most),
            priority=request.priority if self.address.has_priority else 0,
            salt=cache_salt.get(),
        )
        answer = self._answers[seq_id] = UpstreamAnswer(asked, self._closer)
        try:
            async with aclosing(await self._answer(asked)) as chunks:
                async for chunk in chunks:
                    tokens, logprobs = answer.add(chunk)
                    if tokens and not answer.is_cancelled:
                        yield Tokens(seq_id, tokens, logprobs)
                    if answer.is_cancelled:
                        answer.end = answer.end or "cancelled"
                    if answer.end == "cancelled" or answer.runs_on:
                        break
            if asked.grammar is None and (missing := answer.missing_stop()):
                yield Tokens(seq_id, missing)
            assert answer.end is not None  # or the stream would have raised
            yield Finished(seq_id, answer.end, answer.usage())
        finally:
            del self._answers[seq_id]
            usage = answer.usage()
            self._n_prefilled += usage.n_prompt - usage.n_cached if usage.n_generated else 0
            self._n_decoded += usage.n_generated
            self._n_cached += usage.n_cached

    def cancel(self, seq_id: int) -> None:
        """End a sequence at the next chunk; its iterator still yields Finished."""
        if answer := self._answers.get(seq_id):
            answer.is_cancelled = True

    def prefetch(self, lineage: str, tokens: list[int], *, in_memory: bool = False) -> None:
        """Do nothing: upstreams cache prefixes themselves, and take no hints."""

    async def stats(self) -> Stats:
        """Return the counts of this process; remote caches are unknown."""
        return Stats(
            n_running=self.n_active,
            n_prefilled=self._n_prefilled,
            n_decoded=self._n_decoded,
            n_cached_tokens=self._n_cached,
        )

    async def close(self) -> None:
        self._is_closed = True
        await self._connection.close()

    async def _answer(self, asked: Generate) -> AsyncGenerator[AnswerChunk, None]:
        if asked.grammar is None:
            return self._chunks(asked)
        from gptoss_local.runner.upstream.held import compile_mask, held_chunks  # PERF: llguidance

        mask = await compile_mask(asked.grammar, self._vocabulary_file)
        return held_chunks(self._chunks, asked, mask, self._closer)

    async def _chunks(self, asked: Generate) -> AsyncGenerator[AnswerChunk, None]:
        """Yield chunks; until the first token other addresses are tried, or the same again."""
        body = request_body(self.address.kind, self.address.model, asked)
        replicas, tried = self._connection.replicas, set[Replica]()
        n_tries = max(_N_TRIES, len(replicas))
        for n in itertools.count(1):
            replica, gaps = self._connection.choose(asked.prompt, tried), Gaps(self._vocabulary)
            tried.add(replica)
            call = UpstreamCall(
                url=replica.url,
                kind=self.address.kind,
                model=self.address.model,
                n_prompt=len(asked.prompt),
                n_resent=n - 1,
            )
            try:
                with replica.busy(), followed(call):
                    stream = self._connection.stream(replica, body, asked.n_logprobs, call)
                    async with aclosing(stream) as chunks:
                        async for chunk in chunks:
                            filled = gaps.fill(chunk)
                            call.n_generated += len(filled.tokens)
                            call.n_cached = filled.n_cached or call.n_cached
                            yield filled
                replica.failed_s = None
                return
            except UpstreamFault as fault:
                if fault.is_of_replica:
                    replica.failed_s = time.monotonic()
                if call.n_generated or not fault.may_retry or n == n_tries:
                    raise fault.error from fault
                if all(each.failed_s or each in tried for each in replicas):
                    if fault.after_s > _MAX_WAIT_S:
                        raise fault.error from fault
                    await asyncio.sleep(max(_BACKOFF_S * 2 ** (n - 1), fault.after_s))

    def _check(self, n_logprobs: int | None) -> None:
        kind = self.address.kind
        if self._is_closed:
            raise UpstreamError(f"the connection of '{self._name}' was closed")
        if n_logprobs is not None and not KINDS[kind].has_logprobs:
            raise UsageError(
                f"'{self._name}' is computed elsewhere ({kind}), which sends no log-probabilities "
                "by token",
                hint="Leave out logprobs, or use a model of this machine.",
            )
