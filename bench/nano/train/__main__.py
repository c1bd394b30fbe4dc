"""Run as `python -m bench.nano.train --used IDS.json --out DIR`, on one GPU."""

import argparse
import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch

from bench.nano.data.mixture import draw
from bench.nano.train.batches import Inputs, Tables, block_masks, training_batch
from bench.nano.train.checkpoint import load_weights, save_weights
from bench.nano.train.loss import Targets, cross_entropy
from bench.nano.train.model import Nano, Shape
from bench.nano.train.muon import Muon
from bench.nano.train.rows import RowStore
from bench.nano.train.turns import turn_focus
from bench.nano.train.vocabulary import features
from gptoss_local.models.nano.compact import CompactModel

MATRICES = ("q", "k", "v", "o", "gate", "up", "down")  # Muon steps these, Adam all others
WARMUP_STEPS, DECAY_FROM = 200, 0.35
IMBALANCE_WEIGHT = 0.01
N_RARE = 4096  # sampled rare tokens of a batch
TARGET_SHARE = 3 / 8  # of a batch's tokens; a random part if there are more
FIRST_ROWS = 16  # that must be ready before the first step
FIRST_TIMED = 3  # the step from which time counts, when all is compiled


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.nano.train")
    parser.add_argument("--used", type=Path, required=True, help="from bench.nano.train.vocabulary")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=18, help="of training, start-up apart")
    parser.add_argument("--steps", type=int, default=10**9, help="at most")
    parser.add_argument("--start-from", type=Path, help="nano.xz of finished weights")
    parser.add_argument("--rows", type=int, default=2, help="rows of a batch")
    parser.add_argument("--tokens", type=int, default=32768, help="tokens of a row")
    parser.add_argument("--workers", type=int, default=14, help="processes that make data")
    parser.add_argument("--save-minutes", type=float, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--muon-lr", type=float, default=0.015)
    parser.add_argument("--adam-lr", type=float, default=0.003)
    return parser.parse_args()


class Trainer:
    """The model, its optimizers and one training step."""

    def __init__(self, tables: Tables, used: list[int], arguments: argparse.Namespace) -> None:
        self.tables, self.arguments = tables, arguments
        self.model = Nano(Shape(), torch.from_numpy(features(used))).to(tables.device)
        if arguments.start_from:
            load_weights(self.model, tables, CompactModel(arguments.start_from.read_bytes()))
        named = [(n.rsplit(".", 1)[-1], p) for n, p in self.model.blocks.named_parameters()]
        self._muon = Muon([p for n, p in named if n in MATRICES], arguments.muon_lr)
        stepped = {id(p) for n, p in named if n in MATRICES}
        others = [p for p in self.model.parameters() if id(p) not in stepped]
        lr, betas = arguments.adam_lr, (0.9, 0.95)
        self._adam = torch.optim.AdamW(others, lr=lr, betas=betas, weight_decay=0.0, fused=True)
        for block in self.model.blocks:
            block.compile(dynamic=False)
        self._loss = torch.compile(cross_entropy, dynamic=False)

    def step(self, batch: tuple[Inputs, Targets], schedule: float) -> tuple[torch.Tensor, ...]:
        """Learn from one batch; returns loss and share of right targets, still on the GPU."""
        inputs, targets = batch
        masks = block_masks(inputs, self.model.shape.sliding_window)
        codes = self.tables.codes
        hidden, imbalance = self.model(inputs.index, codes[inputs.token], inputs.position, masks)
        rare_codes = codes[targets.rare].float()
        loss, right = self._loss(self.model, hidden, targets, self.tables.used_codes, rare_codes)
        (loss + IMBALANCE_WEIGHT * imbalance).backward()
        for group in self._adam.param_groups:
            group["lr"] = self.arguments.adam_lr * schedule
        self._adam.step()
        self._muon.step(schedule)
        self.model.zero_grad(set_to_none=True)
        return loss.detach(), right


def learning_rate(n_steps: int, progress: float) -> float:
    """Warm-up, plateau, then linear decay; `progress` is the share of the time that is over."""
    decay = min(1.0, (1 - progress) / (1 - DECAY_FROM))
    return max(0.003, min(1.0, (n_steps + 1) / WARMUP_STEPS) * decay)


def train(arguments: argparse.Namespace) -> None:
    store = RowStore(arguments.tokens)
    store.start(draw, arguments.seed, arguments.workers)  # before CUDA, which survives no fork
    torch.manual_seed(arguments.seed)
    torch.set_float32_matmul_precision("high")
    torch._dynamo.config.cache_size_limit = 64
    used = json.loads(arguments.used.read_text())
    tables = Tables(used, "cuda" if torch.cuda.is_available() else "cpu")
    trainer = Trainer(tables, used, arguments)
    rng = np.random.default_rng(arguments.seed * 100)
    n_targets = int(arguments.rows * arguments.tokens * TARGET_SHARE)

    def next_batch(progress: float) -> tuple[Inputs, Targets]:
        rows = store.draw_rows(rng, arguments.rows, n_ready=FIRST_ROWS)
        return training_batch(
            rows, tables, rng, n_targets=n_targets, n_rare=N_RARE, focus=turn_focus(progress)
        )

    with ThreadPoolExecutor(1) as pool:  # the next batch is made while the GPU is busy
        pending, n_steps, progress, recent = pool.submit(next_batch, 0.0), 0, 0.0, []
        begin_s = printed_s = saved_s = time.monotonic()
        while progress < 1 and n_steps < arguments.steps:
            batch, pending = pending.result(), pool.submit(next_batch, progress)
            recent.append(trainer.step(batch, learning_rate(n_steps, progress)))
            n_steps, now_s = n_steps + 1, time.monotonic()
            if n_steps <= FIRST_TIMED:
                begin_s = now_s
            progress = (now_s - begin_s) / (60 * arguments.minutes)
            if n_steps % 200 and n_steps not in (1, 3, 10, 30, 100):
                continue
            loss, right = (torch.stack(list(x)).mean().item() for x in zip(*recent, strict=True))
            rate = arguments.rows * arguments.tokens * len(recent) / (now_s - printed_s)
            print(
                f"step {n_steps} {progress:.3f} loss {loss:.4f} right {right:.5f} "
                f"rows {len(store.rows)} tok/s {rate:.0f}", flush=True,
            )  # fmt: skip
            recent.clear()
            if now_s - saved_s > 60 * arguments.save_minutes:
                save_weights(trainer.model, tables, arguments.out)
                saved_s = time.monotonic()
            printed_s = time.monotonic()
    store.stop()
    save_weights(trainer.model, tables, arguments.out)


if __name__ == "__main__":
    train(parse_arguments())
