"""How many held-out answers the model gets right, every token of them, while it trains.

A branch counts if each token of its answer is the likeliest one given those before it, which is the
same as decoding it greedily. `bench.nano.evaluate` measures the finished GGUF in llama.cpp.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from bench.nano.data.document import BranchTokens, encode_document
from bench.nano.data.mixture import EVAL_SKILLS, eval_documents
from bench.nano.train.batches import Tables, block_masks
from bench.nano.train.checkpoint import used_rows
from bench.nano.train.model import Nano
from bench.nano.train.rows import Row, n_tokens_of

N_CHUNK = 4096  # hidden states whose logits are computed together
Encoded = tuple[list[str], list[int], list[BranchTokens]]


@dataclass
class MeasuredRow:
    """A row and where in it which skill's answers lie."""

    row: Row
    spans: list[tuple[str, int, int]] = field(default_factory=list)


def _draw_skill(skill: str, n: int) -> list[Encoded]:
    drawn: list[Encoded] = []
    for document in eval_documents(skill):
        context, branches = encode_document(document)
        drawn.append(([b.skill for b in document.branches], context, branches))
        if sum(len(skills) for skills, _, _ in drawn) >= n:
            break
    return drawn


def measured_rows(n_per_skill: int, n_tokens: int, n_jobs: int) -> list[MeasuredRow]:
    """Draw the held-out documents of all skills and pack them."""
    with ProcessPoolExecutor(n_jobs) as pool:
        lists = pool.map(_draw_skill, EVAL_SKILLS, [n_per_skill] * len(EVAL_SKILLS))
        documents = [d for drawn in lists for d in drawn]
    return list(_pack(documents, n_tokens))


def _pack(documents: Sequence[Encoded], n_tokens: int) -> Iterable[MeasuredRow]:
    current = MeasuredRow(Row.empty(n_tokens))
    for skills, context, branches in documents:
        if n_tokens_of(context, branches) > n_tokens + 1:
            continue
        if not current.row.has_room(n_tokens_of(context, branches)):
            yield current
            current = MeasuredRow(Row.empty(n_tokens))
        spans = current.row.add(context, branches)
        current.spans += [(s, a, b) for s, (a, b) in zip(skills, spans, strict=True)]
    yield current


@torch.no_grad()
def full_head(model: Nano, tables: Tables) -> Tensor:
    """Head rows of the whole vocabulary in id order, [201088, d] bf16, as they are exported."""
    head = model.head
    rows = head.shared + tables.codes.float() @ head.code_map
    rows[tables.used] = used_rows(head, tables.used_codes)
    return rows.bfloat16()


@torch.no_grad()
def right_by_skill(
    model: Nano, tables: Tables, rows: Iterable[MeasuredRow]
) -> dict[str, tuple[int, int]]:
    """Return (right, all) for each skill."""
    head, right, all_ = full_head(model, tables), Counter[str](), Counter[str]()
    for measured in rows:
        arrays = {name: array[None] for name, array in measured.row.arrays.items()}
        inputs = tables.inputs(arrays)
        masks = block_masks(inputs, model.shape.sliding_window)
        hidden, _ = model(inputs.index, tables.codes[inputs.token], inputs.position, masks)
        place = np.flatnonzero(arrays["weight"][0, 1:])
        best = np.zeros(arrays["token"].shape[1], np.int64)
        for start in range(0, len(place), N_CHUNK):
            part = place[start : start + N_CHUNK]
            logits = hidden[0, torch.from_numpy(part).to(hidden.device)] @ head.T
            best[part + 1] = logits.argmax(-1).cpu().numpy()
        is_right = best == arrays["token"][0]
        for skill, start, end in measured.spans:
            all_[skill] += 1
            right[skill] += bool(is_right[start:end].all())
    return {skill: (right[skill], all_[skill]) for skill in sorted(all_)}
