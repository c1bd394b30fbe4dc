"""Answers many questions behind one context with llama.cpp: read once, then decoded together.

Or tells what it holds for likeliest at each place of a given answer.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from gptoss_local.engine.llama.batch import Batch
from gptoss_local.engine.llama.context import Context
from gptoss_local.engine.llama.model import Model
from gptoss_local.engine.llama.sampler import Sampler
from gptoss_local.harmony.vocabulary import STOP_TOKENS
from gptoss_local.types import ContextParams, SamplingParams

N_TOGETHER = 24  # sequences decoded at once
N_ROWS = 128  # of logits at once, 0.8 MB each
GREEDY = SamplingParams(temperature=0.0)


@dataclass
class Question:
    """What follows the context, and how to answer it.

    Attributes:
        n_max: Most tokens of the answer.
        answer: The tokens so far, at last the stop token.
    """

    prompt: Sequence[int]
    n_max: int
    sampling: SamplingParams = GREEDY
    answer: list[int] = field(default_factory=list)

    @property
    def is_done(self) -> bool:
        return len(self.answer) == self.n_max or (
            bool(self.answer) and self.answer[-1] in STOP_TOKENS
        )


class Answerer:
    """A model that continues from a context it has read.

    Sequence 0 holds the context. Each question gets a copy of it, which shares its cells.

    Args:
        gguf: The model file.
        n_ctx: Most tokens of a context with all questions and answers that are asked together.
        n_threads: For prefill and decode.
        n_together: Most questions that are answered at once.
    """

    def __init__(
        self, gguf: Path, *, n_ctx: int, n_threads: int, n_together: int = N_TOGETHER
    ) -> None:
        params = ContextParams(
            n_ctx=n_ctx, n_threads_prefill=n_threads, n_threads_decode=n_threads,
            n_seq_max=n_together + 1, n_outputs_max=N_ROWS,
        )  # fmt: skip
        self._context = Context(Model(gguf), params)
        self._batch = Batch(max(n_together, N_ROWS))
        self._n_together, self._n_read = n_together, 0

    def read(self, tokens: Sequence[int]) -> None:
        """Take a new context in place of the last."""
        self._context.remove(0)
        self._prefill(tokens, position=0, seq_id=0)
        self._n_read = len(tokens)
        self._forget_behind_window()

    def _forget_behind_window(self) -> None:
        """Free the cells of sliding layers that no later token sees.

        llama.cpp reuses such cells of one sequence, but not when several sequences share them. A
        saved state does without them.
        """
        state = self._context.save(0)
        self._context.remove(0)
        self._context.restore(0, state)

    def answer(self, questions: Sequence[Question]) -> list[list[int]]:
        """Answer each by itself, as many at a time as the cache has room for."""
        waiting = list(questions)
        while waiting:
            n_free, n_now = self._context.n_ctx - self._n_read, 0
            for question in waiting[: self._n_together]:
                n_free -= len(question.prompt) + question.n_max
                n_now += n_free >= 0
            assert n_now, "the context leaves no room for the question"
            self._answer_together(waiting[:n_now])
            del waiting[:n_now]
        return [question.answer for question in questions]

    def likeliest(self, prompt: Sequence[int], answer: Sequence[int]) -> list[int]:
        """The likeliest token at each place of `answer`, given the right ones before it."""
        n_read = self._n_read + len(prompt) - 1
        self._context.copy(0, 1)
        self._prefill(prompt[:-1], position=self._n_read, seq_id=1)
        tokens, batch, found = [prompt[-1], *answer[:-1]], self._batch, list[int]()
        for start in range(0, len(tokens), N_ROWS):
            part = tokens[start : start + N_ROWS]
            batch.clear()
            batch.extend(part, n_read + start, 1, n_outputs=len(part))
            self._context.decode_batch(batch)
            found += (int(np.argmax(self._context.logits(row))) for row in range(len(part)))
        self._context.remove(1)
        return found

    def _answer_together(self, questions: Sequence[Question]) -> None:
        samplers = [Sampler(question.sampling) for question in questions]
        for seq_id, question in enumerate(questions, start=1):
            self._context.copy(0, seq_id)
            self._prefill(question.prompt, position=self._n_read, seq_id=seq_id)
            question.answer.append(samplers[seq_id - 1].sample(self._context))
        while live := [i for i, question in enumerate(questions) if not question.is_done]:
            self._decode((i + 1, questions[i]) for i in live)
            for row, i in enumerate(live):
                questions[i].answer.append(samplers[i].sample(self._context, row=row))
        for seq_id, sampler in enumerate(samplers, start=1):
            sampler.close()
            self._context.remove(seq_id)

    def _decode(self, questions: Iterable[tuple[int, Question]]) -> None:
        """Run the last token of every question through the model, each in its sequence."""
        self._batch.clear()
        for seq_id, question in questions:
            position = self._n_read + len(question.prompt) + len(question.answer) - 1
            self._batch.add(question.answer[-1], position, seq_id)
        self._context.decode_batch(self._batch)

    def _prefill(self, tokens: Sequence[int], *, position: int, seq_id: int) -> None:
        for start in range(0, len(tokens), self._context.n_batch):
            part = tokens[start : start + self._context.n_batch]
            self._context.decode(part, position=position + start, seq_id=seq_id)
