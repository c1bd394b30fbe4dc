"""An engine on the smooth model that keeps its logits, and the reference they must equal."""

from array import array
from collections.abc import Iterable
from collections.abc import Sequence as Seq
from pathlib import Path
from typing import Any

import llama_cpp
import msgspec
import numpy as np
import numpy.typing as npt
import pytest

import gptoss_local.engine.worker.engine as engine_module
from gptoss_local.base.types import CacheType
from gptoss_local.engine.llama import Batch, Context, Model
from gptoss_local.engine.protocol import (
    Failed,
    Finished,
    Prefetch,
    PrefixOptions,
)
from gptoss_local.engine.worker.cache.slots import common_prefix
from gptoss_local.engine.worker.costs import StepCosts
from gptoss_local.engine.worker.drafts import Speculation
from gptoss_local.engine.worker.sampling.draw import draw
from gptoss_local.engine.worker.sequence import Sequence
from tests.engine import run
from tests.engine.run import make_context
from tests.engine.smooth_model import N_VOCAB, TOLERANCE

END, CALL = 1, 2
Logits = npt.NDArray[np.float32]


def own_context(
    model: Model, n_ctx: int, n_seq: int, n_batch: int = 64, cache_type: CacheType = "bf16"
) -> Context:
    sizes = {"n_ctx": n_ctx, "n_seq_max": n_seq, "n_batch": n_batch}
    return make_context(model, **sizes, n_outputs_max=min(64, n_batch), cache_type=cache_type)


def read_logits(context: Context, row: int) -> Logits:
    pointer = llama_cpp.llama_get_logits_ith(context.handle, row)
    return np.ctypeslib.as_array(pointer, (N_VOCAB,)).copy()


class Reference:
    """Logits of whole prompts, prefilled into an empty cache that forgets nothing."""

    def __init__(self, model: Model, cache_type: CacheType = "bf16") -> None:
        self._context = own_context(model, 1024, 1, cache_type=cache_type)

    def logits(self, tokens: list[int], n_prompt: int) -> list[Logits]:
        """Return the logits behind the prompt and behind each further token."""
        self._context.remove(0)
        found = []
        for start in range(0, len(tokens), 32):
            chunk = tokens[start : start + 32]
            batch = Batch(32)
            batch.extend(chunk, start, 0, n_outputs=len(chunk))
            self._context.decode_batch(batch)
            rows = range(max(0, n_prompt - 1 - start), len(chunk))
            found += [read_logits(self._context, row) for row in rows]
        return found


def most_cached(prompt: list[int], owned: Iterable[list[int]]) -> int:
    """The tokens of a prompt that its owner has had computed before, which alone may be cached."""
    return max((common_prefix(array("i", prompt), array("i", text)) for text in owned), default=0)


class Asked:
    """A request of a run, and its outcome."""

    def __init__(self, run: "Run", seq_id: int, prompt: list[int], salt: bytes) -> None:
        self._run, self._seq_id = run, seq_id
        self.prompt, self.salt = prompt, salt
        self.logits: list[Logits] = []

    @property
    def answer(self) -> list[int]:
        return self._run.tokens[self._seq_id]

    @property
    def end(self) -> Finished | Failed | None:
        return self._run.ends.get(self._seq_id)

    @property
    def n_cached(self) -> int:
        return self._run.end(self._seq_id).usage.n_cached


class Run(run.Run):
    """An engine that keeps its logits, and all its requests."""

    def __init__(
        self,
        model: Model,
        monkeypatch: pytest.MonkeyPatch,
        *,
        prefixes: PrefixOptions | None = None,
        tolerance: float = TOLERANCE,
        cache_type: CacheType = "bf16",
        **sizes: int,
    ) -> None:
        sizes = {"n_ctx": 512, "n_seq": 3} | sizes
        context = own_context(model, **sizes, cache_type=cache_type)
        super().__init__(context, prefixes=prefixes or in_memory())
        self.asked: list[Asked] = []
        self.prefetched: list[tuple[bytes, list[int]]] = []
        self.model = model
        self._tolerance = tolerance
        monkeypatch.setattr(engine_module, "draw", self._draw)
        # Drafts as they are found, not as they would pay at the moment: a run can be repeated.
        monkeypatch.setattr(StepCosts, "draft_length", lambda costs, n, p, n_max: min(n_max, 4))
        monkeypatch.setattr(Speculation, "observe", lambda speculation, rows, step_s: None)

    def ask(self, prompt: list[int], n_answer: int = 4, **options: Any) -> Asked:
        seq_id = len(self.asked)
        self.asked.append(Asked(self, seq_id, prompt, options.get("salt", b"")))
        self.add(seq_id, prompt, stop_tokens=[], max_tokens=n_answer, **options)
        return self.asked[-1]

    def answer(self, prompt: list[int], n_answer: int = 4, **options: Any) -> Asked:  # type: ignore[override]
        asked = self.ask(prompt, n_answer, **options)
        self.finish()
        return asked

    def prefetch(
        self, tokens: list[int], lineage: str = "x", *, in_memory: bool = False, salt: bytes = b""
    ) -> None:
        self.prefetched.append((salt, tokens))
        self.engine.prefetch(Prefetch(lineage, tokens, in_memory, salt))

    def errors(self) -> list[float]:
        """How far each request's logits are from the reference's, at most."""
        reference = Reference(self.model, self.context.cache_type)
        found = []
        for asked in self.asked:
            assert not isinstance(asked.end, Failed)
            tokens = asked.prompt + asked.answer[:-1]
            wanted = reference.logits(tokens, len(asked.prompt))
            pairs = list(zip(wanted, asked.logits, strict=False))
            found.append(max((float(abs(a - b).max()) for a, b in pairs), default=0.0))
            for logits, token in zip(wanted, asked.answer, strict=False):
                if found[-1] <= self._tolerance:  # or else the token may be another one
                    assert logits[token] >= logits.max() - 2 * self._tolerance
        return found

    def check_owners(self) -> None:
        for asked in self.asked:
            others = [(a.salt, a.prompt + a.answer) for a in self.asked if a is not asked]
            owned = (text for salt, text in others + self.prefetched if salt == asked.salt)
            assert asked.n_cached <= most_cached(asked.prompt, owned)

    def close(self) -> None:
        self.context.close()

    def _draw(
        self, sequence: Sequence, context: Context, row: int, draft: "Seq[int]" = ()
    ) -> list[int]:
        tokens = draw(sequence, context, row, draft)
        logits = self.asked[sequence.request.seq_id].logits
        logits += [read_logits(context, row + i) for i in range(len(tokens))]
        return tokens


def in_memory(checkpoint_bytes: int = 2**20) -> PrefixOptions:
    return PrefixOptions(checkpoint_bytes=checkpoint_bytes, boundary_tokens=(END, CALL))


def on_disk(folder: Path, **options: Any) -> PrefixOptions:
    """Prefixes that also outlive the engine, in a folder that has room for all of them."""
    options = {"folder": str(folder), "disk_bytes": 2**24} | options
    return msgspec.structs.replace(in_memory(), **options)


def text(seed: int, n_tokens: int) -> list[int]:
    return [int(t) for t in np.random.default_rng(seed).integers(10, N_VOCAB, n_tokens)]
