"""Continuous batching over one model: requests in, events out, one `step()` at a time."""

import math
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait

from gptoss_local.base.errors import ComputeError, ContextOverflowError, EngineError, GptOssError
from gptoss_local.base.types import FinishReason, StepTimes
from gptoss_local.engine.llama import Batch, Canary, Context, Sampler
from gptoss_local.engine.protocol import (
    Event,
    Finished,
    Generate,
    Logprob,
    Prefetch,
    Prefilled,
    PrefixOptions,
    Stats,
    Tokens,
    failure,
)
from gptoss_local.engine.worker.cache.archive import Archive
from gptoss_local.engine.worker.cache.blocks import BlockReporter
from gptoss_local.engine.worker.cache.prefix_cache import Prefetcher, PrefixCache
from gptoss_local.engine.worker.cache.slots import Slots
from gptoss_local.engine.worker.costs import measured_costs
from gptoss_local.engine.worker.drafts import Speculation
from gptoss_local.engine.worker.sampling.draw import (
    draw,
    logprob,
    move_to_cpu,
    place_sampler,
    prepare_samplers,
)
from gptoss_local.engine.worker.sampling.mask import Mask, MaskCompiler
from gptoss_local.engine.worker.scheduler import Scheduler, StepTiming, Work, fill_batch
from gptoss_local.engine.worker.sequence import Sequence

_CHECK_AFTER_S = 2.0  # with a plan of memory it takes 0.2 s, which an agent should not wait for
_COMPILE_WAIT_S = 0.01  # between two looks for new commands while there is nothing else to do


class Engine:
    """Up to `n_seq_max` sequences in one KV cache; others wait. Time advances only in `step()`.

    Outputs of the context beyond `n_seq_max` are for drafts. `backend_sampling`: on the device
    where the chain allows it. `prompt_step_s`: most time of a step of prompts alone, as a cancel
    waits for two of them; if finite, these overlap, for models that are on a GPU as a whole.
    """

    def __init__(
        self,
        context: Context,
        masks: MaskCompiler | None = None,
        prefixes: PrefixOptions = PrefixOptions(),  # noqa: B008 (frozen)
        *,
        backend_sampling: bool = False,
        step_costs: StepTimes | None = None,
        prompt_step_s: float = math.inf,
    ) -> None:
        self._context = context
        self._masks = masks
        self._compiling: dict[Sequence, Future[Mask]] = {}  # they queue once they have their masks
        self._backend_sampling = backend_sampling
        slots = self._slots = Slots(context)
        self._cache = PrefixCache(context, slots, prefixes)
        self._blocks: BlockReporter | None = None
        is_kept = prefixes.folder is not None and prefixes.disk_bytes > 0
        self.archive = Archive(context, slots, self._cache, prefixes) if is_kept else None
        self._batch = Batch(context.n_batch)
        self._sequences: dict[int, Sequence] = {}
        self._n_arrived = self._n_prefilled = self._n_decoded = 0
        if backend_sampling:
            prepare_samplers(context)
        n_draft_max = context.n_outputs_max - context.n_seq_max
        n_streams = context.n_seq_max if backend_sampling else 0
        self.step_costs = measured_costs(context, n_draft_max, n_streams, step_costs)
        self._speculation = Speculation(context.n_ctx, n_draft_max, self.step_costs)
        self._scheduler = Scheduler(
            slots, self._cache, self.archive, self._speculation, context.n_batch, prompt_step_s
        )
        self._prefetcher = Prefetcher(context, slots, self._cache, self._scheduler.pace)
        self._overlaps = math.isfinite(prompt_step_s)
        self.timing = StepTiming(self._scheduler, overlaps=self._overlaps)
        self._canary = Canary(context)
        self._n_done_checked = -1
        self._n_done_seen, self._check_at_s = -1, 0.0

    @property
    def has_work(self) -> bool:
        return bool(self._sequences) or self._prefetcher.has_work

    @property
    def n_done(self) -> int:
        return self.timing.n_steps + self._prefetcher.n_prefilled

    def add_request(self, request: Generate) -> list[Event]:
        n_prompt, n_ctx = len(request.prompt), self._context.n_ctx
        if not n_prompt:
            return [failure(EngineError("the prompt is empty"), request.seq_id)]
        if n_prompt >= n_ctx:
            why = f"the prompt has {n_prompt} tokens and the context holds {n_ctx}"
            return [failure(ContextOverflowError(why), request.seq_id)]
        sequence = Sequence(request, self._n_arrived, Sampler(request.sampling))
        self._speculation.start(sequence)
        self._n_arrived += 1
        self._sequences[request.seq_id] = sequence
        if request.grammar is None:
            self._scheduler.add(sequence)
        else:
            assert self._masks is not None
            self._compiling[sequence] = self._masks.compile(request.grammar)
        return []

    def cancel(self, seq_id: int) -> list[Event]:
        """Forget a waiting or running sequence; its slot and cells are free immediately."""
        self.timing.forget()
        sequence = self._sequences.get(seq_id)
        return [self._finish(sequence, "cancelled")] if sequence else []

    def prefetch(self, request: Prefetch) -> None:
        self._prefetcher.add(request)

    def step(self, meanwhile: Callable[[], None] = lambda: None) -> list[Event]:
        """Admit waiting sequences, decode one batch and sample where that is due; or prefetch.

        `meanwhile` is called at most once, when the device has the batch. May raise ComputeError.
        """
        self.timing.n_tokens = 0
        self._cache.save_noted()
        if not self._sequences and self._prefetcher.has_work:
            meanwhile()
            self._prefetcher.step()
            return []
        events = self._queue_compiled()
        for sequence in self._scheduler.admit():
            if self._backend_sampling:
                place_sampler(sequence, self._context)
        self._cache.make_way_at_times()
        plan = self._scheduler.plan()
        if not plan:
            meanwhile()
            wait(self._compiling.values(), _COMPILE_WAIT_S, FIRST_COMPLETED)
            return events
        self.timing.begin()
        rows = fill_batch(self._batch, plan)
        self.timing.n_tokens = self._batch.n_tokens
        try:
            self._context.decode_batch(self._batch)
        except ComputeError:
            raise
        except GptOssError as error:
            self.timing.forget()
            return events + self._recover(plan, error)
        self.timing.launch(plan)
        meanwhile()
        for work, row in zip(plan, rows, strict=True):
            events += self._advance(work, row)
        self.timing.end()
        return events

    def rest_s(self) -> float | None:
        """Return in how many idle seconds to call `rest`; None: never."""
        if self._n_done_checked != self.n_done:
            if self._n_done_seen != self.n_done:  # questions about the engine do not count
                self._n_done_seen = self.n_done
                self._check_at_s = time.monotonic() + _CHECK_AFTER_S
            return max(0.0, self._check_at_s - time.monotonic())
        return self.archive.wait_s(self.n_done) if self.archive else None

    def rest(self) -> None:
        if self._n_done_checked != self.n_done:
            if self._overlaps:  # the next prompt is read faster after it
                self._context.plan_memory()
                if not self.n_done:
                    self._context.warm_up()
            self._check_device()
        elif self.archive:
            self.archive.rest()

    def report_blocks(self, n_block_tokens: int) -> None:
        self._blocks = BlockReporter(self._cache, self._slots, n_block_tokens)

    def block_changes(self) -> list[Event]:
        changes = self._blocks.changes() if self._blocks else None
        return [changes] if changes else []

    def _check_device(self) -> None:
        self._cache.make_room(len(self._slots.all) + 2)
        slots = [slot for slot in self._slots.all if self._slots.is_live(slot, len(slot.tokens))]
        self._canary.check({slot.index: len(slot.tokens) for slot in slots})
        self._n_done_checked = self.n_done

    def stats(self) -> Stats:
        return Stats(
            n_running=len(self._scheduler.running),
            n_waiting=len(self._scheduler.waiting) + len(self._compiling),
            n_cells=self._slots.n_cells,
            n_cells_used=self._slots.n_cells_used,
            n_cells_cached=self._slots.n_cells_cached,
            n_checkpoints=len(self._cache.checkpoints),
            checkpoint_bytes=self._cache.checkpoints.n_bytes,
            n_steps=self.timing.n_steps,
            n_prefilled=self._n_prefilled,
            n_decoded=self._n_decoded,
            n_prefetched=self._prefetcher.n_prefilled,
            n_preempted=self._scheduler.n_preempted,
            n_drafted=self._speculation.n_drafted,
            n_accepted=self._speculation.n_accepted,
            n_cached_tokens=self._scheduler.n_cached,
            n_evicted=self._cache.n_evicted,
            n_checks=self._canary.n_checks,
            problems=self.check(),
        )

    def check(self) -> list[str]:
        """Return differences of the records from llama.cpp's state; between steps, 1 ms."""
        scheduled = [s for s in self._sequences.values() if s not in self._compiling]
        problems = self._slots.check() + self._cache.checkpoints.check()
        return problems + self._scheduler.check(scheduled)

    def _queue_compiled(self) -> list[Event]:
        events: list[Event] = []
        for sequence in [s for s, mask in self._compiling.items() if mask.done()]:
            try:
                sequence.mask = self._compiling.pop(sequence).result()
            except GptOssError as error:
                self._forget(sequence)
                events.append(failure(error, sequence.request.seq_id))
            else:
                self._scheduler.add(sequence)
        return events

    def _advance(self, work: Work, row: int) -> list[Event]:
        sequence, slot = work.sequence, work.sequence.own_slot
        ends_in_sample = work.ends_in_sample
        n_past = len(slot.tokens)
        slot.tokens += sequence.tokens[n_past : n_past + work.n_tokens]
        self._n_prefilled += sequence.count_read()
        self._cache.note(slot, n_past)
        if not ends_in_sample:
            request = sequence.request
            if not request.reports_prefill or sequence.n_generated:  # read again after a preemption
                return []
            return [Prefilled(request.seq_id, sequence.n_past, sequence.n_cached)]
        sequence.is_suspect = False
        if sequence.request.max_tokens == 0:
            self._context.synchronize()  # its time counts until the device is done
            return [self._finish(sequence, "length")]
        logprobs: list[Logprob] = []
        try:
            tokens = draw(sequence, self._context, row, work.draft)
            if (n_top := sequence.request.n_logprobs) is not None:  # the CPU drew one
                logprobs = [logprob(self._context.logits(row), t, n_top) for t in tokens]
        except ComputeError:
            raise
        except GptOssError as error:
            self._release(sequence)
            return [failure(error, sequence.request.seq_id)]
        sequence.prefilled_ns = sequence.prefilled_ns or time.monotonic_ns()
        if not tokens:
            move_to_cpu(sequence, self._context, self._cache)
            return []
        if work.draft:
            slot.tokens.extend(work.draft[: len(tokens) - 1])
            if len(tokens) <= len(work.draft):  # newer than the window: it can always be undone
                self._context.remove(slot.index, len(slot.tokens))
        events: list[Event] = []
        if sequence.request.reports_prefill and not sequence.n_generated:
            events += [Prefilled(sequence.request.seq_id, sequence.n_past, sequence.n_cached)]
        tokens, reason = sequence.append(tokens, self._context.n_ctx)
        self._n_decoded += len(tokens)
        self._speculation.advance(sequence, len(work.draft), len(tokens) - 1 if work.draft else 0)
        events += [Tokens(sequence.request.seq_id, tokens, logprobs)]
        return [*events, self._finish(sequence, reason)] if reason else events

    def _recover(self, plan: list[Work], error: GptOssError) -> list[Event]:
        """Fail the sequence that llama.cpp failed on.

        With several in one batch it is unknown which, so each starts again alone until its next
        token. Cached prefixes go before any fails.
        """
        is_full = isinstance(error, ContextOverflowError) and bool(self._slots.cached)
        if len(plan) == 1 and not is_full:
            sequence = plan[0].sequence
            self._release(sequence, is_intact=False)
            return [failure(error, sequence.request.seq_id)]
        if is_full:
            self._cache.clear()
        for work in plan:
            work.sequence.is_suspect = True
            self._scheduler.preempt(work.sequence, is_intact=False)
        return []

    def _finish(self, sequence: Sequence, reason: FinishReason) -> Finished:
        self._release(sequence)
        return Finished(sequence.request.seq_id, reason, sequence.usage())

    def _release(self, sequence: Sequence, *, is_intact: bool = True) -> None:
        self._speculation.finish(sequence)
        if compiling := self._compiling.pop(sequence, None):
            compiling.cancel()
        else:
            self._scheduler.release(sequence, is_intact=is_intact)
        self._forget(sequence)

    def _forget(self, sequence: Sequence) -> None:
        sequence.sampler.close()
        del self._sequences[sequence.request.seq_id]
