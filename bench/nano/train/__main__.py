"""Run as `torchrun --nproc-per-node gpu -m bench.nano.train --used IDS.json --out DIR`."""

import argparse
import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bench.nano.data.mixture import draw
from bench.nano.train import parallel
from bench.nano.train.batches import Tables, block_masks, training_batch
from bench.nano.train.checkpoint import load_weights, save_weights
from bench.nano.train.loss import cross_entropy
from bench.nano.train.measure import MeasuredRow, measured_rows, right_by_skill
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
FIRST_ROWS = 16  # that must be ready for each GPU before the first step


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.nano.train")
    parser.add_argument("--used", type=Path, required=True, help="from bench.nano.train.vocabulary")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=18, help="of training, start-up apart")
    parser.add_argument("--start-from", type=Path, help="nano.xz of finished weights")
    parser.add_argument("--rows", type=int, default=2, help="rows of a batch on each GPU")
    parser.add_argument("--tokens", type=int, default=32768, help="tokens of a row")
    parser.add_argument("--workers", type=int, default=14, help="processes that make data")
    parser.add_argument("--measure-minutes", type=float, default=3)
    parser.add_argument("--save-minutes", type=float, default=1, help="in case it is killed")
    parser.add_argument("--n-measure", type=int, default=64, help="held-out answers per skill")
    parser.add_argument("--data", type=Path, default=Path("/tmp/nano-rows"))
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
        self.parameters = list(self.model.parameters())
        parallel.share(self.parameters)
        named = [(n.rsplit(".", 1)[-1], p) for n, p in self.model.blocks.named_parameters()]
        self._muon = Muon([p for n, p in named if n in MATRICES], arguments.muon_lr)
        stepped = {id(p) for n, p in named if n in MATRICES}
        self._adam = torch.optim.AdamW(
            [p for p in self.parameters if id(p) not in stepped],
            lr=arguments.adam_lr, betas=(0.9, 0.95), weight_decay=0.0, fused=True,
        )  # fmt: skip
        for block in self.model.blocks:
            block.compile(dynamic=False)
        self._loss = torch.compile(cross_entropy, dynamic=False)

    def step(self, batch: Any, schedule: float) -> tuple[torch.Tensor, torch.Tensor]:
        """Learn from one batch; returns loss and share of right targets, still on the GPU."""
        inputs, targets = batch
        masks = block_masks(inputs, self.model.shape.sliding_window)
        codes = self.tables.codes
        hidden, imbalance = self.model(inputs.index, codes[inputs.token], inputs.position, masks)
        rare_codes = codes[targets.rare].float()
        loss, right = self._loss(self.model, hidden, targets, self.tables.used_codes, rare_codes)
        (loss + IMBALANCE_WEIGHT * imbalance).backward()
        parallel.average_gradients(self.parameters)
        for group in self._adam.param_groups:
            group["lr"] = self.arguments.adam_lr * schedule
        self._adam.step()
        self._muon.step(schedule)
        for parameter in self.parameters:
            parameter.grad = None
        return loss.detach(), right


def learning_rate(n_steps: int, progress: float) -> float:
    """Warm-up, plateau, then linear decay; `progress` is the share of the time that is over."""
    decay = min(1.0, (1 - progress) / (1 - DECAY_FROM))
    return max(0.003, min(1.0, (n_steps + 1) / WARMUP_STEPS) * decay)


def save(trainer: Trainer) -> None:
    save_weights(trainer.model, trainer.tables, trainer.arguments.out)


def report(trainer: Trainer, rows: list[MeasuredRow], title: str) -> None:
    """Save the weights so far, measure them, print the scores, the worst first, and save those."""
    save(trainer)
    scores = right_by_skill(trainer.model, trainer.tables, rows)
    worst = sorted(scores.items(), key=lambda item: item[1][0] / item[1][1])
    print(title, " ".join(f"{s}={a}/{b}" for s, (a, b) in worst), flush=True)
    name = f"scores {title}.json".replace(" ", "_")
    (trainer.arguments.out / name).write_text(json.dumps(scores, indent=1))


def train(arguments: argparse.Namespace) -> None:
    started_s = time.monotonic()
    is_first = parallel.RANK == 0
    store = RowStore(
        arguments.data, n_workers=arguments.workers, n_rows=4000, n_tokens=arguments.tokens
    )
    if is_first:  # before CUDA, which does not survive a fork
        store.start(draw, arguments.seed)
    held_out = measured_rows(arguments.n_measure, arguments.tokens, n_jobs=8) if is_first else []
    device = parallel.start()
    torch.manual_seed(arguments.seed)
    torch.set_float32_matmul_precision("high")
    torch._dynamo.config.cache_size_limit = 64
    used = json.loads(arguments.used.read_text())
    tables = Tables(used, device)
    trainer = Trainer(tables, used, arguments)  # the first process arrives here last, files made
    rng = np.random.default_rng(arguments.seed * 100 + parallel.RANK)
    store.open()
    while store.n_rows_done() < FIRST_ROWS * parallel.N_PROCESSES:
        time.sleep(0.2)
    print(f"process {parallel.RANK} ready after {time.monotonic() - started_s:.0f} s", flush=True)

    def next_batch(progress: float) -> Any:
        n_targets = int(arguments.rows * arguments.tokens * TARGET_SHARE)
        return training_batch(
            store, tables, rng, n_rows=arguments.rows, n_targets=n_targets, n_rare=N_RARE,
            turn_focus=turn_focus(progress),
        )  # fmt: skip

    if is_first and arguments.start_from:
        report(trainer, held_out, "start")
    with ThreadPoolExecutor(1) as pool:
        loop(trainer, store, held_out, lambda progress: pool.submit(next_batch, progress))
    if is_first:
        store.stop()
        report(trainer, held_out, "end")
        print(f"done after {time.monotonic() - started_s:.0f} s", flush=True)
    parallel.stop()


def loop(trainer: Trainer, store: RowStore, held_out: list[MeasuredRow], submit: Any) -> None:
    """Step until the time is over; the first process prints a line every 100 steps."""
    arguments, pending = trainer.arguments, submit(0.0)
    clock, n_steps, recent = parallel.Clock(arguments.minutes), 0, []
    n_tokens = arguments.rows * arguments.tokens * parallel.N_PROCESSES
    last_measured_s = last_saved_s = last_print_s = time.monotonic()
    while (progress := clock.progress(n_steps)) < 1:
        batch, pending = pending.result(), submit(progress)
        losses = trainer.step(batch, learning_rate(n_steps, progress))
        n_steps += 1
        if n_steps % 1000 == 0:
            parallel.share(trainer.parameters)
        if parallel.RANK > 0:
            continue
        recent.append(losses)
        if time.monotonic() - last_saved_s > 60 * arguments.save_minutes:
            save(trainer)
            last_saved_s = time.monotonic()
        if n_steps % 200 and n_steps not in (1, 3, 10, 30, 100):
            continue
        loss, right = (torch.stack(list(x)).mean().item() for x in zip(*recent, strict=True))
        rate = n_tokens * len(recent) / (time.monotonic() - last_print_s)
        print(
            f"step {n_steps} {progress:.3f} loss {loss:.4f} right {right:.5f} "
            f"rows {store.n_rows_done()} tok/s {rate:.0f}",
            flush=True,
        )
        recent, last_print_s = [], time.monotonic()
        if last_print_s - last_measured_s > 60 * arguments.measure_minutes:
            report(trainer, held_out, f"held out at {n_steps}")
            last_measured_s = last_print_s = time.monotonic()


if __name__ == "__main__":
    train(parse_arguments())
