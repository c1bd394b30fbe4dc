"""The decode loop over one model: requests in, events out, one `step()` at a time.

One sequence runs, the others wait in order. Every sequence prefills from an empty cache.
"""

import time
from collections import deque

from gptoss_local.engine.protocol import Event, Failed, Finished, Generate, Tokens
from gptoss_local.engine.sequence import Sequence
from gptoss_local.errors import ContextOverflowError, EngineError, GptOssError
from gptoss_local.llama import Context, Sampler
from gptoss_local.types import FinishReason, Usage

_SLOT = 0  # llama.cpp's sequence id of the only slot


class Engine:
    """Time advances only in `step()`.

    Thread: all methods belong to the thread that made the context.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._waiting: deque[Generate] = deque()
        self._running: Sequence | None = None

    @property
    def has_work(self) -> bool:
        return self._running is not None or bool(self._waiting)

    def add_request(self, request: Generate) -> None:
        self._waiting.append(request)

    def cancel(self, seq_id: int) -> list[Event]:
        """Forget a waiting or running sequence and free its slot at once."""
        if self._running is not None and self._running.request.seq_id == seq_id:
            return [self._finish(self._running, "cancelled")]
        for request in self._waiting:
            if request.seq_id == seq_id:
                self._waiting.remove(request)
                usage = Usage(len(request.prompt), n_generated=0, prefill_ns=0, decode_ns=0)
                return [Finished(seq_id, "cancelled", usage)]
        return []

    def step(self) -> list[Event]:
        """Admit a sequence if none runs, decode one batch of it, and sample if it is due."""
        if self._running is None:
            if not self._waiting:
                return []
            request = self._waiting.popleft()
            if reason := self._refusal(request):
                return [failure(reason, request.seq_id)]
            self._context.remove(_SLOT)
            self._running = Sequence(request, Sampler(request.sampling))
        sequence = self._running
        try:
            if sequence.is_prefilling:
                self._prefill_chunk(sequence)
                if sequence.is_prefilling:
                    return []
                sequence.prefilled_ns = time.monotonic_ns()
                if sequence.request.max_tokens == 0:
                    return [self._finish(sequence, "length")]
            else:
                self._context.decode([sequence.last_token], position=sequence.n_past, seq_id=_SLOT)
                sequence.n_past += 1
            return self._sample(sequence)
        except GptOssError as error:
            self._release(sequence)
            return [failure(error, sequence.request.seq_id)]

    def _refusal(self, request: Generate) -> GptOssError | None:
        n_prompt, n_ctx = len(request.prompt), self._context.n_ctx
        if n_prompt == 0:
            return EngineError("the prompt is empty")
        if n_prompt >= n_ctx:
            return ContextOverflowError(
                f"the prompt has {n_prompt} tokens and the context holds {n_ctx}"
            )
        return None

    def _prefill_chunk(self, sequence: Sequence) -> None:
        start = sequence.n_past
        chunk = sequence.request.prompt[start : start + self._context.n_batch]
        self._context.decode(chunk, position=start, seq_id=_SLOT)
        sequence.n_past += len(chunk)

    def _sample(self, sequence: Sequence) -> list[Event]:
        token = sequence.last_token = sequence.sampler.sample(self._context)
        sequence.n_generated += 1
        event = Tokens(sequence.request.seq_id, [token])
        if token in sequence.request.stop_tokens:
            return [event, self._finish(sequence, "stop")]
        if (
            sequence.n_generated == sequence.request.max_tokens
            or sequence.n_past == self._context.n_ctx
        ):
            return [event, self._finish(sequence, "length")]
        return [event]

    def _finish(self, sequence: Sequence, reason: FinishReason) -> Finished:
        self._release(sequence)
        return Finished(sequence.request.seq_id, reason, sequence.usage())

    def _release(self, sequence: Sequence) -> None:
        sequence.sampler.close()
        self._running = None


def failure(error: GptOssError, seq_id: int | None) -> Failed:
    """The frame that carries `error` to the client."""
    return Failed(seq_id=seq_id, error=type(error).__name__, message=error.message, hint=error.hint)
