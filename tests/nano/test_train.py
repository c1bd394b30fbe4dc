"""The training code computes gpt-oss: its checkpoint gives transformers the same numbers."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from torch import Tensor, nn
from transformers import GptOssConfig, GptOssForCausalLM

from bench.nano.data.document import Answer, Branch, Document, encode_document
from bench.nano.export import export
from bench.nano.train import model as model_module
from bench.nano.train.batches import Inputs, Tables
from bench.nano.train.checkpoint import config, load_weights, save_weights
from bench.nano.train.loss import Targets, cross_entropy, make_targets
from bench.nano.train.measure import full_head
from bench.nano.train.model import Nano, Shape
from bench.nano.train.mxfp4 import E2M1, fake_quantize, pack
from bench.nano.train.rows import Row
from bench.nano.train.vocabulary import features
from gptoss_local.formats.o200k import FIRST_SPECIAL
from gptoss_local.harmony.message import Message
from gptoss_local.models.nano.compact import CODED, CompactModel
from gptoss_local.models.nano.ranks import load_ranks

SHAPE = Shape(hidden_size=64, intermediate_size=32, n_layers=4, n_heads=4, n_experts=4)
USED = [*range(15, 25), 1000, 2000, 3000, *range(199998, 200013)]


def dense_attention(
    q: Tensor, k: Tensor, v: Tensor, *, block_mask: Any, enable_gqa: bool, return_aux: Any
) -> tuple[Tensor, Any]:
    """What flex_attention computes, which has no gradient on a CPU; one row."""
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
    scores = (q @ k.transpose(-1, -2)) * q.shape[-1] ** -0.5
    scores = scores.masked_fill(~block_mask, float("-inf"))
    return scores.softmax(-1) @ v, SimpleNamespace(lse=scores.logsumexp(-1))


def dense_masks(inputs: Inputs) -> tuple[Tensor, Tensor]:
    """Who sees whom, written down a second time, over all pairs."""
    (document,), (branch,), (position,) = inputs.document, inputs.branch, inputs.position
    order = torch.arange(len(document))
    full = order[:, None] >= order[None]
    full &= document[:, None] == document[None]
    full &= (branch[None] == 0) | (branch[:, None] == branch[None])
    return full & (position[:, None] - position[None] < SHAPE.sliding_window), full


@pytest.fixture
def nano(monkeypatch: pytest.MonkeyPatch) -> tuple[Nano, Tables]:
    monkeypatch.setattr(model_module, "flex_attention", dense_attention)
    torch.manual_seed(0)
    tables = Tables(USED, "cpu")
    nano = Nano(SHAPE, torch.from_numpy(features(USED)))
    for parameter in nano.parameters():  # what starts at zero or one would hide mistakes
        nn.init.normal_(parameter, std=0.15)
        parameter.data = parameter.data.bfloat16().float()
    return nano, tables


def sample_row() -> tuple[Row, list[tuple[int, int]], list[list[int]]]:
    """A row of two documents, where the answers of the second lie, and its conversations."""
    branches = tuple(
        Branch("x", (Message(role="user", content=ask),), Answer(answer))
        for ask, answer in (("Hi Springfield, 123", "Bonjour 456"), ("What?", "zażółć gęślą"))
    )
    document = Document("low", branches, instructions="Be nice. " * 40)
    context, encoded = encode_document(document)
    row = Row.empty(511)
    row.add(context[:30], encoded[:1])
    spans = row.add(context, encoded)
    return row, spans, [context + b.prompt + b.target for b in encoded]


def test_branches_get_the_logits_of_transformers(nano: tuple[Nano, Tables], tmp_path: Path) -> None:
    model, tables = nano
    row, spans, conversations = sample_row()
    inputs = tables.inputs({name: array[None] for name, array in row.arrays.items()})
    with torch.no_grad():
        codes = tables.codes[inputs.token]
        masks = dense_masks(inputs)
        hidden, _ = model(inputs.index, codes, inputs.position, masks, torch.float32)
        logits = hidden[0] @ full_head(model, tables).float().T
    save_weights(model, tables, tmp_path)
    reference = transformers_model(model, tables, tmp_path)
    for (start, end), tokens in zip(spans, conversations, strict=True):
        with torch.no_grad():
            expected = reference(input_ids=torch.tensor([tokens])).logits[0]
        n = end - start
        torch.testing.assert_close(logits[start - 1 : end - 1], expected[-n - 1 : -1],
                                   atol=0.02 * float(expected.std()), rtol=0.02)  # fmt: skip


def test_training_goes_on_from_finished_weights(nano: tuple[Nano, Tables], tmp_path: Path) -> None:
    """The packed weights give back the model that was packed, also for other used tokens."""
    model, tables = nano
    save_weights(model, tables, tmp_path)
    finished = CompactModel(export(tmp_path))
    used = sorted({*USED[1:], 500, 7000})
    other = Nano(SHAPE, torch.from_numpy(features(used)))
    load_weights(other, Tables(used, "cpu"), finished)
    save_weights(other, Tables(used, "cpu"), tmp_path)
    again = CompactModel(export(tmp_path))
    assert set(again.names) == set(finished.names)
    for name in again.names:
        a, b = again.read(name), finished.read(name)
        if name in CODED:  # a used row is bf16, a coded one is rounded from integers
            lost = USED[0]
            a, b = (np.delete(from_bits(x).numpy(), lost, axis=0) for x in (a, b))
            np.testing.assert_allclose(a, b, rtol=0.02, atol=1e-3)
        else:
            assert np.array_equal(a, b), name


def transformers_model(model: Nano, tables: Tables, folder: Path) -> GptOssForCausalLM:
    """The saved checkpoint in transformers, experts unpacked, all vocabulary rows filled in."""
    saved = load_file(folder / "nano.safetensors")
    state = {n: from_bits(t) for n, t in saved.items() if t.dtype == np.uint16}
    for name in [n for n in saved if n.endswith("_blocks")]:
        stem = name.removesuffix("_blocks")
        state[stem] = unpack(saved[name], saved[f"{stem}_scales"]).transpose(1, 2)
    embedding = model.embed.shared + tables.codes.float() @ model.embed.code_map
    embedding[tables.used] = state["model.embed_tokens.weight"]
    state |= {"model.embed_tokens.weight": embedding.detach()}
    state |= {"lm_head.weight": full_head(model, tables).float()}
    left_out = ("architectures", "quantization_config", "torch_dtype", "transformers_version")
    arguments = {k: v for k, v in config(SHAPE).items() if k not in left_out}
    hf_config = GptOssConfig(**arguments, attn_implementation="eager")
    reference = GptOssForCausalLM(hf_config).float().eval()
    reference.load_state_dict(state, strict=True)
    return reference


def from_bits(bits: np.ndarray[Any, Any]) -> Tensor:
    return torch.from_numpy(bits.view(np.int16)).view(torch.bfloat16).float()


def unpack(blocks: np.ndarray[Any, Any], scales: np.ndarray[Any, Any]) -> Tensor:
    grid = torch.tensor([*E2M1, *(-x for x in E2M1)])
    both = torch.from_numpy(np.stack((blocks & 15, blocks >> 4), -1)).long()
    values = grid[both].reshape(*blocks.shape[:-1], 32)
    return (values * torch.exp2(torch.from_numpy(scales).float() - 127)[..., None]).flatten(-2)


def test_fake_quantization_is_what_is_packed() -> None:
    weight = torch.randn(3, 64, 96, requires_grad=True)
    rounded = fake_quantize(weight)
    blocks, scales = (part.numpy() for part in pack(weight.detach()))
    torch.testing.assert_close(unpack(blocks, scales), rounded.detach(), rtol=1e-6, atol=1e-7)
    rounded.sum().backward()
    assert weight.grad is not None
    assert torch.equal(weight.grad, torch.ones_like(weight))


def test_a_few_steps_learn(nano: tuple[Nano, Tables]) -> None:
    """One row is learned by heart: gradients reach what they must."""
    model, tables = nano
    row, _, _ = sample_row()
    arrays = {name: array[None] for name, array in row.arrays.items()}
    inputs, rng = tables.inputs(arrays), np.random.default_rng(0)
    made = make_targets(arrays, tables.index_of, rng, n_targets=256, n_rare=512)
    targets = Targets(**{name: torch.from_numpy(array) for name, array in made.items()})
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for _ in range(30):
        hidden, _ = model(
            inputs.index, tables.codes[inputs.token], inputs.position, dense_masks(inputs),
            torch.float32,
        )  # fmt: skip
        rare_codes = tables.codes[targets.rare].float()
        loss, right = cross_entropy(model, hidden, targets, tables.used_codes, rare_codes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[0] > 3
    assert losses[-1] < 0.5
    assert float(right) > 0.9


def test_targets_are_told_from_tokens_that_begin_alike() -> None:
    """Their codes differ in the last slots only, and a random sample hardly ever holds them."""
    ranks = load_ranks()
    target = ranks.index(b" sustent")
    tables = Tables(USED, "cpu")
    tokens = np.array([[17, target, 18]])
    arrays = {"token": tokens, "weight": np.array([[0.0, 1.0, 1.0]])}
    beside: set[bytes] = set()
    for seed in range(40):
        made = make_targets(
            arrays, tables.index_of, np.random.default_rng(seed), n_targets=4, n_rare=24
        )
        rare, offset = made["rare"].tolist(), made["offset"]
        assert rare[made["label"][0] - len(USED)] == target == rare[0]
        assert len(set(rare)) == 24
        assert np.allclose(np.exp(offset[:8]), [1, *7 * [12 / 7]])
        n_rare = FIRST_SPECIAL - sum(token < FIRST_SPECIAL for token in USED)
        assert np.exp(offset).sum() == pytest.approx(n_rare, rel=1e-5)
        beside.update(ranks[token] for token in rare[1:8])
    assert " sustentável".encode() in beside
    assert all(word.startswith(b" su") for word in beside)


def test_sampled_tokens_stand_for_the_whole_vocabulary(nano: tuple[Nano, Tables]) -> None:
    """The estimated loss agrees with the one over all 201,088 rows."""
    model, tables = nano
    row, _, _ = sample_row()
    arrays = {name: array[None] for name, array in row.arrays.items()}
    hidden = 0.1 * torch.randn(1, 511, SHAPE.hidden_size)
    made = make_targets(
        arrays, tables.index_of, np.random.default_rng(0), n_targets=256, n_rare=16384
    )
    targets = Targets(**{name: torch.from_numpy(array) for name, array in made.items()})
    with torch.no_grad():
        rare_codes = tables.codes[targets.rare].float()
        estimate, _ = cross_entropy(model, hidden, targets, tables.used_codes, rare_codes)
        used = targets.weight > 0
        place = targets.place[used]
        n_sayable = max(USED) + 1
        logits = hidden[0, place] @ full_head(model, tables)[:n_sayable].float().T
        label = torch.from_numpy(arrays["token"][0].astype(np.int64))[place + 1]
        losses = nn.functional.cross_entropy(logits, label, reduction="none")
        weight = targets.weight[used]
        exact = (losses * weight).sum() / weight.sum()
    assert abs(float(estimate - exact)) < 0.05
