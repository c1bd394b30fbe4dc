"""Random clients of one engine, and the judge of their answers.

An answer with a seed is compared, token by token, with the same request alone on a fresh
engine; an answer without one, with the probabilities that the model gives it. Both go through
a reference with logits from one plain prefill. Sums in another order round otherwise, so a
token may differ where two were nearly alike; how alike is measured here, not assumed.
"""

import math
import random
import string
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import llguidance
import msgspec
import numpy as np
import numpy.typing as npt
import pytest

from gptoss_local.base.types import CacheType, Penalties, SamplingParams
from gptoss_local.engine.llama import Model
from gptoss_local.engine.llama.sampler import N_BLOCK
from gptoss_local.engine.protocol import (
    Event,
    Failed,
    Finished,
    Generate,
    Prefetch,
    Prefilled,
    PrefixOptions,
    Tokens,
)
from gptoss_local.engine.worker.cache import archive, prefix_cache
from gptoss_local.engine.worker.costs import PrefillPace, StepCosts
from gptoss_local.engine.worker.drafts import Speculation
from gptoss_local.engine.worker.engine import Engine
from gptoss_local.engine.worker.sampling.mask import Mask, MaskCompiler
from tests.engine.prefix_run import END, Reference, most_cached, text
from tests.engine.run import make_context
from tests.engine.smooth_model import N_VOCAB

N_CTX = 1024
N_ANSWER_MAX = 40
SALTS = b"", b"another owner"
_IMPOSSIBLE = 1e-7  # odds of a token that is drawn once in a hundred runs of the test
GRAMMARS = (
    'start: /[a-h]{2,6}/ "=" /[0-9]{1,3}/',
    'start: "begin " /[k-p]+/ " end"',
    'start: ("red" | "green" | "blue")+',
)


class SmallMasks(MaskCompiler):
    """Masks over the smooth model's vocabulary: bytes, and pairs of letters."""

    def __init__(self) -> None:
        super().__init__(Path())
        pairs = [(a + b).encode() for a in string.ascii_letters for b in string.ascii_lowercase]
        words = [bytes([i]) for i in range(256)] + pairs[: N_VOCAB - 257]
        self._tokenizer = llguidance.LLTokenizer.from_tiktoken(  # type: ignore[attr-defined]
            encoder={word: i for i, word in enumerate(words)},
            special_tokens={"<end>": N_VOCAB - 1},
            pattern=r"\w+|\W",
            eos_token=N_VOCAB - 1,
            n_vocab=N_VOCAB,
            slices=[],
        )

    def mask(self, grammar: str) -> Mask:
        return self._compile(grammar)


class Asked:
    """A request, its answer so far, and its end."""

    def __init__(self, request: Generate) -> None:
        self.request = request
        self.answer: list[int] = []
        self.end: Finished | Failed | None = None
        self.is_cancelled = False
        self._n_read = 0

    def take(self, event: Tokens | Prefilled | Finished | Failed) -> None:
        match event:
            case Tokens(_, tokens):
                self.answer += tokens
            case Prefilled(_, n_tokens):
                self._n_read = max(self._n_read, n_tokens)
            case Finished(_, _, usage):
                self._n_read = max(self._n_read, usage.n_cached)
                if usage.decode_ns:  # the prompt was complete, even if no token came of it
                    self._n_read = usage.n_prompt
                self.end = event
            case Failed():
                self.end = event

    @property
    def counts(self) -> Counter[str]:
        """Tokens of the prompt that were computed or reused, and tokens of the answer."""
        assert isinstance(self.end, Finished), self.end
        usage = self.end.usage
        assert self.is_cancelled or self._n_read == len(self.request.prompt)
        return Counter(
            prefilled=self._n_read - usage.n_cached,
            cached=usage.n_cached,
            decoded=len(self.answer),
        )


def make_engine(
    model: Model,
    masks: MaskCompiler,
    *,
    on_device: bool,
    n_seq: int = 1,
    n_ctx: int = N_CTX,
    n_batch: int = 64,
    n_draft_max: int = 0,
    checkpoint_bytes: int = 0,
    folder: Path | None = None,
    overlaps: bool = False,
    cache_type: CacheType = "bf16",
) -> Engine:
    context = make_context(
        model,
        n_ctx=n_ctx,
        n_batch=n_batch,
        n_seq_max=n_seq,
        n_outputs_max=n_seq + n_draft_max,
        n_outputs_max_per_seq=1 + n_draft_max,
        cache_type=cache_type,
    )
    return Engine(
        context,
        masks,
        PrefixOptions(
            checkpoint_bytes=checkpoint_bytes,
            boundary_tokens=(END,),
            folder=str(folder) if folder else None,
            disk_bytes=2**24,
            keep_s=0,
        ),
        backend_sampling=on_device,
        prompt_step_s=1.0 if overlaps else math.inf,
    )


class Interleaving:
    """One engine of a random shape, and all that random clients do with it; the seed decides."""

    def __init__(
        self, model: Model, masks: MaskCompiler, seed: int, folder: Path, cache_type: CacheType
    ) -> None:
        rng = self._rng = random.Random(seed)
        self._model, self._masks = model, masks
        self.on_device = rng.random() < 0.6
        self.n_seq, self.n_ctx = rng.choice([1, 2, 3, 4, 5, 8, 12]), rng.choice([256, 512, N_CTX])
        saves = rng.random() < 0.4
        self._shape = {
            "on_device": self.on_device,
            "n_seq": self.n_seq,
            "n_ctx": self.n_ctx,
            "n_batch": rng.choice([32, 64]),
            "n_draft_max": rng.choice([0, 3, 15]),
            "checkpoint_bytes": rng.choice([0, 3, 40]) * 18_000,
            "folder": folder if saves else None,
            "overlaps": rng.random() < 0.7,
            "cache_type": cache_type,
        }
        self.engine = make_engine(model, masks, **self._shape)  # type: ignore[arg-type]
        self.asked: list[Asked] = []
        self.prefetched: list[tuple[bytes, list[int]]] = []
        self._n_asked_before = 0  # of other engines
        self.done: Counter[str] = Counter()
        self._n_texts = seed * 1000

    def run(self) -> None:
        actions = [self._ask] * 6 + [self._cancel, self._prefetch, self._rest, self._rest]
        actions += [self._restart] * 2 * bool(self._shape["folder"])
        self._rng.choice([self._rest, lambda: None])()
        for _ in range(self._rng.randint(4, 9)):
            self._rng.choice(actions)()
            self._steps(self._rng.choice([0, 1, 3, 10, 30]))
        self._finish()
        self._count()
        self.close()

    def close(self) -> None:
        if self.engine.archive:
            self.engine.archive.close()
        self.engine._context.close()

    def _ask(self) -> None:
        """One client, or a crowd of one program's or of many."""
        sampling, is_mixed = self._sampling(), self._rng.random() < 0.5
        for _ in range(self._rng.choice([1, 2, self.n_seq, self.n_seq])):
            request = self._request(self._sampling() if is_mixed else sampling)
            self.asked.append(Asked(request))
            self._take(self.engine.add_request(request))

    def _sampling(self) -> SamplingParams:
        rng = self._rng
        return SamplingParams(
            temperature=rng.choice([0.0, 1.0, 1.0, 4.0]),
            top_k=rng.choice([0, 0, 0, 1, 20]),
            top_p=rng.choice([1.0, 1.0, 0.9]),
            min_p=rng.choice([0.0, 0.0, 0.05]),
        )

    def _request(self, sampling: SamplingParams) -> Generate:
        rng = self._rng
        seed = rng.choice([None, rng.randrange(2**32), rng.randrange(2**32)])
        sampling = msgspec.structs.replace(sampling, seed=seed)
        grammar, n_logprobs, kind = None, None, rng.random()
        if kind < 0.1:
            grammar = rng.choice(GRAMMARS)
        elif kind < 0.2:
            n_logprobs = 3
        elif kind < 0.27:
            penalties = Penalties(repeat=1.2, presence=0.5, frequency=0.5)
            sampling = msgspec.structs.replace(sampling, penalties=penalties)
        elif kind < 0.33:
            sampling = msgspec.structs.replace(sampling, logit_bias=((65, 6.0), (66, -100.0)))
        return Generate(
            seq_id=len(self.asked),
            prompt=self._prompt(),
            sampling=sampling,
            stop_tokens=[END],
            max_tokens=rng.choice([1, 3, 8, N_ANSWER_MAX]),
            grammar=grammar,
            n_logprobs=n_logprobs,
            priority=rng.choice([0, 0, 0, 1, -1]),
            caller="abc"[len(self.asked) % 3],
            reports_prefill=True,
            salt=rng.choice(SALTS),
        )

    def _prompt(self) -> list[int]:
        rng = self._rng
        self._n_texts += 1
        new = [*text(self._n_texts, rng.choice([2, 20, 60])), END]
        old = rng.choice(self.asked) if self.asked and rng.random() < 0.5 else None
        if old is None:
            start = rng.choice([text(1, 100), text(2, 30), []])
        else:  # a turn later, with or without the answer; or all of it once more
            start = [*old.request.prompt, *rng.choice([old.answer, [], old.answer[2:]])]
        if rng.random() < 0.3:
            new += new  # repeats, which drafts are found in
        prompt = [*start, *new]
        return prompt[-(self.n_ctx - N_ANSWER_MAX) :]

    def _cancel(self) -> None:
        living = [asked for asked in self.asked if asked.end is None]
        if living:
            asked = self._rng.choice(living)
            asked.is_cancelled = True
            self._take(self.engine.cancel(asked.request.seq_id))

    def _prefetch(self) -> None:
        if self.asked:
            old = self._rng.choice(self.asked)
            lineage, salt = str(self._rng.randrange(3)), self._rng.choice(SALTS)
            self.prefetched.append((salt, old.request.prompt))
            self.engine.prefetch(Prefetch(lineage, old.request.prompt, salt=salt))

    def _rest(self) -> None:
        """Long enough for all that waits for nobody's asking."""
        self._finish()
        for _ in range(self._rng.randint(1, 3)):
            if self.engine.rest_s() is not None:
                self.engine.rest()
                self.done["rests"] += 1

    def _restart(self) -> None:
        """Start another process, which finds the last one's cache on disk."""
        self._finish()
        self._count()
        self.close()
        self.engine = make_engine(self._model, self._masks, **self._shape)  # type: ignore[arg-type]
        self._n_asked_before = len(self.asked)
        self.done["restarts"] += 1
        if self.asked:
            self._come_back(self._rng.choice(self.asked))

    def _come_back(self, old: "Asked") -> None:
        """A turn later; somebody else asks the same before."""
        prompt = [*old.request.prompt, *old.answer, END][: self.n_ctx - N_ANSWER_MAX]
        for salt in sorted(SALTS, key=lambda salt: salt == old.request.salt):
            n = len(self.asked)
            request = msgspec.structs.replace(old.request, seq_id=n, prompt=prompt, salt=salt)
            self.asked.append(Asked(request))
            self._take(self.engine.add_request(request))

    def _steps(self, n: int) -> None:
        while n and self.engine.has_work:
            self._take(self.engine.step())
            n -= 1

    def _finish(self) -> None:
        n_steps = 0
        while self.engine.has_work:
            n_steps += 1
            assert n_steps < 5000, "the engine makes no progress"
            self._take(self.engine.step())
        assert self.engine.check() == []
        self._check_counts()

    def _check_counts(self) -> None:
        """Each token of a prompt is counted once, and so is each of an answer."""
        stats = self.engine.stats()
        counted = Counter(
            prefilled=stats.n_prefilled, cached=stats.n_cached_tokens, decoded=stats.n_decoded
        )
        of_requests = (asked.counts for asked in self.asked[self._n_asked_before :])
        assert counted == sum(of_requests, Counter())

    def _take(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, Tokens | Prefilled | Finished | Failed):
                assert event.seq_id is not None
                self.asked[event.seq_id].take(event)

    def _count(self) -> None:
        stats = self.engine.stats()
        self.done.update(
            requests=len(self.asked) - self.done["requests"],
            cancelled=sum(asked.is_cancelled for asked in self.asked) - self.done["cancelled"],
            prefetched=stats.n_prefetched,
            drafted=stats.n_drafted,
            accepted=stats.n_accepted,
            preempted=stats.n_preempted,
            cached=stats.n_cached_tokens,
            checkpoints=stats.n_checkpoints,
        )


class Judge:
    """Tells for each answer whether it is the model's own; rounding moves logits by `tolerance`."""

    def __init__(
        self, model: Model, masks: SmallMasks, tolerance: float, cache_type: CacheType
    ) -> None:
        self._model, self._masks, self._tolerance = model, masks, tolerance
        self._cache_type = cache_type
        self._reference = Reference(model, cache_type)
        self.n_answers = self.n_tokens = 0
        self.flips: list[float] = []
        """Of each seeded answer that differs: how unlike the first two different tokens are."""
        self.draws: list[float] = []
        """Of each token without a seed: the random number that draws it, from 0 to 1."""

    def judge(self, run: Interleaving) -> None:
        for asked in run.asked:
            assert isinstance(asked.end, Finished), asked.end
            others = ((a.request, a.answer) for a in run.asked if a is not asked)
            texts = [(request.salt, request.prompt + answer) for request, answer in others]
            owned = (text for salt, text in texts + run.prefetched if salt == asked.request.salt)
            assert asked.end.usage.n_cached <= most_cached(asked.request.prompt, owned)
            self.n_answers += 1
            self.n_tokens += len(asked.answer)
            if asked.request.sampling.seed is None and asked.request.sampling.temperature > 0:
                self._draws(asked)
            else:
                self._compare(asked, on_device=run.on_device)

    def alone(self, request: Generate, *, on_device: bool) -> list[int]:
        """The answer of a fresh engine that has nothing else to do."""
        engine = make_engine(
            self._model, self._masks, on_device=on_device, cache_type=self._cache_type
        )
        events = engine.add_request(request)
        while engine.has_work:
            events += engine.step()
        engine._context.close()
        return [token for event in events if isinstance(event, Tokens) for token in event.tokens]

    def _compare(self, asked: Asked, *, on_device: bool) -> None:
        wanted = self.alone(asked.request, on_device=on_device)
        n = len(asked.answer)
        if asked.answer == wanted or (asked.is_cancelled and asked.answer == wanted[:n]):
            return
        pairs = enumerate(zip(wanted, asked.answer, strict=False))
        at = next((i for i, (a, b) in pairs if a != b), None)
        assert at is not None, f"{asked.request.seq_id}: {n} tokens, alone {len(wanted)}"
        one, other = wanted[at], asked.answer[at]
        assert 0 <= other < N_VOCAB, f"token {other} does not exist"
        place = next(self._places(asked, wanted[: at + 1], first=at))
        self.flips.append(place.distance(one, other, on_device=on_device))

    def _draws(self, asked: Asked) -> None:
        places = self._places(asked, asked.answer)
        for place, token in zip(places, asked.answer, strict=True):
            assert 0 <= token < N_VOCAB, f"token {token} does not exist"
            assert place.can_draw(token, self._tolerance), f"token {token} cannot be drawn"
            below = float(place.odds[:token].sum())
            within = random.Random(len(self.draws)).random()
            self.draws.append(below + within * float(place.odds[token]))

    def _places(self, asked: Asked, answer: list[int], *, first: int = 0) -> Iterator["Place"]:
        """Yield the distribution of each token of an answer, from the `first` one on."""
        request = asked.request
        mask = self._masks.mask(request.grammar) if request.grammar else None
        rows = self._reference.logits([*request.prompt, *answer[:-1]], len(request.prompt))
        for i, (row, token) in enumerate(zip(rows, answer, strict=False)):
            if i >= first:
                logits = _changed(row.astype(np.float64), request.sampling, answer[:i])
                if mask is not None:
                    allowed = np.zeros(N_VOCAB, bool)
                    allowed[mask.allowed()] = True
                    logits[~allowed] = -np.inf
                yield Place(logits, request.sampling)
            if mask is not None:
                mask.accept(token)


class Place:
    """The distribution of one token, of logits behind biases, penalties and masks."""

    def __init__(self, logits: npt.NDArray[np.float64], sampling: SamplingParams) -> None:
        self._logits, self._sampling = logits, sampling
        self._order = np.argsort(-logits, kind="stable")
        self.odds = _filtered(logits, self._order, sampling)

    def can_draw(self, token: int, tolerance: float) -> bool:
        """Whether rounding allows for a token: it is not unlikely, and not clearly filtered out."""
        free = SamplingParams(self._sampling.temperature)
        lowest = self._logits[self.odds > 0].min()
        is_kept = self._logits[token] > lowest - 2 * tolerance
        return bool(is_kept and _filtered(self._logits, self._order, free)[token] > _IMPOSSIBLE)

    def distance(self, one: int, other: int, *, on_device: bool) -> float:
        """How far from `one` the random number must be to draw `other`; infinite if it cannot be.

        That is the odds of what lies between them, in an order in which tokens are counted up. At
        temperature 0, and where a filter keeps one of two tokens, it is the difference of logits.
        """
        by_logits = float(abs(self._logits[one] - self._logits[other]))
        if self._sampling.temperature == 0:
            return by_logits
        odds = _filtered(self._logits, self._order, _loosened(self._sampling))
        if min(odds[one], odds[other]) < _IMPOSSIBLE:
            return math.inf
        by_id = _between(odds, one, other)
        by_odds = _between(odds[self._order], *np.argsort(self._order)[[one, other]])
        if on_device or self._sampling.has_filters:
            return min(by_id, by_odds) if self._sampling.top_k != 1 else by_logits
        blocks = np.add.reduceat(odds, np.arange(0, N_VOCAB, N_BLOCK))  # see `_draw_in_two`
        if one // N_BLOCK != other // N_BLOCK:
            return _between(blocks, one // N_BLOCK, other // N_BLOCK)
        return by_id / blocks[one // N_BLOCK]


def _loosened(sampling: SamplingParams) -> SamplingParams:
    """Return filters with room for rounding."""
    return msgspec.structs.replace(
        sampling,
        top_k=sampling.top_k and sampling.top_k + 1,
        top_p=min(1.0, sampling.top_p * 1.002),
        min_p=sampling.min_p * 0.98,
    )


def _between(odds: npt.NDArray[np.float64], one: int, other: int) -> float:
    return float(odds[min(one, other) + 1 : max(one, other)].sum())


def _changed(
    logits: npt.NDArray[np.float64], sampling: SamplingParams, answer: list[int]
) -> npt.NDArray[np.float64]:
    for token, bias in sampling.logit_bias:
        logits[token] += bias
    if (p := sampling.penalties) is not None:
        for token, n in Counter(answer).items():
            logits[token] *= p.repeat if logits[token] <= 0 else 1 / p.repeat
            logits[token] -= n * p.frequency + p.presence
    return logits


def _filtered(
    logits: npt.NDArray[np.float64], order: npt.NDArray[np.intp], sampling: SamplingParams
) -> npt.NDArray[np.float64]:
    """Probabilities behind filters and temperature, which come in the order of `_samplers`."""
    odds = np.exp(logits[order] - logits.max())
    if sampling.top_k:
        odds[sampling.top_k :] = 0
    odds /= odds.sum()
    if sampling.top_p < 1:
        odds[np.cumsum(odds) - odds >= sampling.top_p] = 0
    if sampling.min_p > 0:
        odds[odds < sampling.min_p * odds.max()] = 0
    temperature = sampling.temperature or 1
    shares = np.where(odds > 0, np.exp((logits[order] - logits.max()) / temperature), 0)
    probabilities = np.zeros(N_VOCAB)
    probabilities[order] = shares / shares.sum()
    return probabilities


@contextmanager
def repeatable() -> Iterator[None]:
    """Make runs independent of the clock, and treat short prompts as long ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prefix_cache, "_CHECKPOINT_EVERY", 100)
        patch.setattr(prefix_cache, "_WORTH_REUSING", 4)
        patch.setattr(prefix_cache, "_FEW_CELLS", 0)
        patch.setattr(archive, "_WORTH_TOKENS", 16)
        patch.setattr(PrefillPace, "observe", lambda *_: None)
        patch.setattr(StepCosts, "draft_length", lambda costs, n, p, n_max: min(n_max, 4))
        patch.setattr(Speculation, "observe", lambda speculation, rows, step_s: None)
        patch.setattr(StepCosts, "n_streams", lambda costs, n: n - n // 3)
        yield
