"""Cross entropy over 201,088 tokens of which only some rows are computed.

Used tokens and the rare tokens that the batch needs take part as they are; random samples stand
for all other rare tokens, each counted as often as it stands for others.
"""

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from bench.nano.train.model import Nano, Rows
from gptoss_local.base.formats.o200k import FIRST_SPECIAL
from gptoss_local.models.nano.ranks import load_ranks

N_VOCAB = 201_088
N_NEAR = 6  # places in the alphabet up to which a token is taken for another


@dataclass
class Targets:
    """What a batch must predict.

    Attributes:
        place: Flat index of the hidden state before each target token, [n_targets].
        label: Index of the target in (used rows, sampled rare rows), [n_targets].
        weight: Weight in the loss; 0 for padding, [n_targets].
        rare: Ids of the sampled rare tokens, [n_rare].
        offset: What is added to their logits: log of how many tokens each stands for, [n_rare].
    """

    place: Tensor
    label: Tensor
    weight: Tensor
    rare: Tensor
    offset: Tensor


def make_targets(
    rows: dict[str, NDArray[Any]], index_of: NDArray[np.int64], rng: np.random.Generator,
    *, n_targets: int, n_rare: int,
) -> dict[str, NDArray[Any]]:  # fmt: skip
    """Choose the targets of a batch; a random part of them where there are too many.

    Args:
        rows: Fields as `RowStore.draw_rows` gives them.
        index_of: For every token id its index among the used ones, n_used for rare tokens.
    """
    n_used = int(index_of.max())
    token, weight = rows["token"][:, 1:].ravel(), rows["weight"][:, 1:].ravel()
    place = np.flatnonzero(weight)
    if len(place) > n_targets:
        place = np.sort(rng.choice(place, n_targets, replace=False))
    is_rare = index_of == n_used
    is_rare[FIRST_SPECIAL:] = False
    targets = np.unique(token[place][is_rare[token[place]]])
    is_rare[targets] = False
    if len(targets) > n_rare // 2:
        targets = rng.choice(targets, n_rare // 2, replace=False)
    others, offset = _sample_rare(is_rare, _alike(targets), token, rng, n_rare - len(targets))
    rare = np.concatenate((targets, others))
    offset = np.concatenate((np.zeros(len(targets), np.float32), offset))
    where = np.full(N_VOCAB, -1)
    where[rare] = n_used + np.arange(n_rare)
    ids = token[place]
    label = np.where(index_of[ids] == n_used, where[ids], index_of[ids])
    keep = label >= 0
    out_place, out_label = np.zeros(n_targets, np.int64), np.zeros(n_targets, np.int64)
    out_weight = np.zeros(n_targets, np.float32)
    n = int(keep.sum())
    out_place[:n], out_label[:n], out_weight[:n] = place[keep], label[keep], weight[place][keep]
    return {"place": out_place, "label": out_label, "weight": out_weight, "rare": rare,
            "offset": offset}  # fmt: skip


def _sample_rare(
    is_rare: NDArray[np.bool_],
    alike: NDArray[Any],
    read: NDArray[Any],
    rng: np.random.Generator,
    n: int,
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Choose `n` rare tokens: likely mistakes first, at most a third of each kind, then any.

    Each stands for as many of its kind as there are for one that is chosen. Were the likely ones
    counted as they are, most of a few thousand would take no part in the loss.

    Args:
        is_rare: Which of all tokens may be chosen.
        alike: Tokens that are spelled much like a target.
        read: Tokens that stand in the batch.

    Returns:
        Their ids, and the log of how many each stands for.
    """
    left = is_rare.copy()
    chosen, offset = [], []
    for kind, n_most in ((alike, n // 3), (read, n // 3), (slice(None), n)):
        is_member = np.zeros_like(left)
        is_member[kind] = left[kind]
        members = np.flatnonzero(is_member)  # PERF: np.unique would sort them all
        n_now = min(n_most, n - sum(map(len, chosen)), len(members))
        chosen.append(rng.choice(members, n_now, replace=False))
        offset.append(np.full(n_now, math.log(len(members) / n_now) if n_now else 0, np.float32))
        left[members] = False
    return np.concatenate(chosen), np.concatenate(offset)


def _alike(tokens: NDArray[Any]) -> NDArray[np.int64]:
    """Tokens that are near the given ones in the alphabet, so that most begin as they do.

    The codes of such tokens agree in all slots but the last ones: " sustent", " sustentável".
    """
    order, place_of = _alphabet()
    steps = np.delete(np.arange(-N_NEAR, N_NEAR + 1), N_NEAR)
    places = np.clip(place_of[tokens][:, None] + steps, 0, len(order) - 1)
    return order[places].ravel()


@functools.cache
def _alphabet() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    ranks = load_ranks()
    order = np.array(sorted(range(len(ranks)), key=ranks.__getitem__), np.int64)
    place_of = np.empty_like(order)
    place_of[order] = np.arange(len(order))
    return order, place_of


def head_rows(head: Rows, used_codes: Tensor, rare_codes: Tensor, dtype: torch.dtype) -> Tensor:
    """Head rows of all used and of some rare tokens, [n_used + n_rare, d]."""
    table = head.table()
    used = table[:-1] + used_codes @ head.code_map
    rare = table[-1] + rare_codes @ head.code_map
    return torch.cat((used, rare)).to(dtype)


def cross_entropy(
    model: Nano, hidden: Tensor, targets: Targets, used_codes: Tensor, rare_codes: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the mean weighted loss and the share of targets that are predicted right."""
    rows = head_rows(model.head, used_codes, rare_codes, hidden.dtype)
    chosen = hidden.flatten(0, 1)[targets.place]
    logits = F.linear(chosen, rows).float()
    n_used = used_codes.shape[0]
    logits = torch.cat((logits[:, :n_used], logits[:, n_used:] + targets.offset), -1)
    losses = F.cross_entropy(logits, targets.label, reduction="none")
    is_target = (targets.weight > 0).float()
    right = ((logits.argmax(-1) == targets.label).float() * is_target).sum() / is_target.sum()
    return (losses * targets.weight).sum() / targets.weight.sum(), right
