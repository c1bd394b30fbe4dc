"""Compare what `gptoss capacity` simulates with Dynamo's mocker, on many workers.

    python bench/mocker_check.py [--bench FILE] [--arrivals FILE] [--workers 1,4,16] [--like-vllm]

Both get the same requests, with shared prefixes, and the same step times: of `gptoss bench --json`,
or an H100's. Each chooses workers in turn, and by what these have cached. `--arrivals` is a file in
the format of Mooncake's traces, with `hash_ids` in each line; without it there are 12 conversations
of 6 turns for each worker. `--like-vllm` also simulates our engine with what the mocker does in
another way: whole batches of prompts, and more cached prefixes than slots. pip fetches Dynamo once
(80 MB).

The mocker simulates vLLM's scheduler. It replays without processes: hours of a rack in seconds. For
workers that answer requests, `--npz FILE.npz` keeps the step times for `python -m dynamo.mocker
--planner-profile-data FILE`. What cells that are in use cost a prompt (`token_cell_s`) has no place
there, and a step takes 1 ms at least.
"""

import argparse
import itertools
import json
import os
import random
import sys
import tempfile
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import msgspec
import numpy as np

from gptoss_local.cluster.capacity.profile import Profile
from gptoss_local.cluster.capacity.simulated_engine import (
    Arrival,
    Route,
    Served,
    SimulatedEngine,
    prefix_aware,
    replay,
)
from gptoss_local.cluster.capacity.sizing import Service, summarize
from gptoss_local.cluster.capacity.source import read_arrivals, read_bench
from gptoss_local.engine.worker.costs import PrefillPace
from tests.dynamo.packages import dynamo_packages

BLOCK_TRACE, BLOCK = 512, 16  # tokens that a hash stands for; of a block of vLLM's
N_CONVERSATIONS, N_TURNS = 12, 6
N_SLOTS = 64  # of an engine like vLLM, which caches prefixes until its memory is full
START_S, PAUSE_S = 30.0, 6.0  # conversations begin within; between two turns
ROUTINGS = {"in turn": "round_robin", "by prefix": "kv_router"}


class Scene(NamedTuple):
    """All that a simulator needs; the file has the same requests as the list."""

    trace: Path
    requests: Sequence[Arrival]
    profile: Profile
    npz: Path
    n_workers: int
    routing: str


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bench", type=Path, default=Path("bench/results/h100-20b.json"))
    parser.add_argument("--arrivals", type=Path)
    parser.add_argument("--workers", default="1,4,16")
    parser.add_argument("--npz", type=Path)
    parser.add_argument("--like-vllm", action="store_true")
    arguments = parser.parse_args()
    profile = read_bench(arguments.bench).profile
    columns = "first token, median and 95 % | tokens/s each, 95 % | prompts cached | took"
    print(f"| workers | chosen | simulated by | {columns} |\n|{'---|' * 7}")
    with tempfile.TemporaryDirectory() as folder:
        npz = arguments.npz or Path(folder) / "steps.npz"
        write_steps(npz, profile)
        for n_workers in map(int, arguments.workers.split(",")):
            trace = arguments.arrivals or write_trace(Path(folder) / "trace.jsonl", n_workers)
            requests = read_arrivals(trace, profile.n_ctx)
            for routing in ROUTINGS:
                scene = Scene(trace, requests, profile, npz, n_workers, routing)
                for name, simulator in SIMULATORS.items():
                    if simulator is not like_vllm or arguments.like_vllm:
                        report(scene, name, simulator)


def report(scene: Scene, name: str, simulator: Callable[[Scene], list[Served]]) -> None:
    begin_s = time.perf_counter()
    row = in_words(summarize(simulator(scene), scene.requests))
    took_s = time.perf_counter() - begin_s
    print(f"| {scene.n_workers} | {scene.routing} | {name} | {row} | {took_s:.2f} s |", flush=True)


def in_words(service: Service) -> str:
    return (
        f"{service.first_token_median_s * 1e3:.0f} and {service.first_token_s * 1e3:.0f} ms | "
        f"{service.user_tok_s:.0f} | {service.cached_share:.1%}"
    )


def simulate(scene: Scene) -> list[Served]:
    engines = [SimulatedEngine(scene.profile) for _ in range(scene.n_workers)]
    route = prefix_aware if scene.routing == "by prefix" else in_turn()
    return replay(scene.requests, engines, route)


def like_vllm(scene: Scene) -> list[Served]:
    """Simulate engines with many slots, which read prompts in whole batches while others wait."""

    def observe(pace: PrefillPace, n_prefilled: int, step_s: float) -> None:
        pace.n_tokens = scene.profile.n_batch

    profile = msgspec.structs.replace(scene.profile, n_seq=N_SLOTS)
    with mock.patch.object(PrefillPace, "observe", observe):
        return simulate(scene._replace(profile=profile))


def in_turn() -> Route:
    numbers = itertools.count()

    def route(engines: Sequence[SimulatedEngine], prompt: "array[int]") -> SimulatedEngine:
        return engines[next(numbers) % len(engines)]

    return route


def mocker(scene: Scene) -> list[Served]:
    os.environ.setdefault("DYN_LOG", "error")
    sys.path.append(str(dynamo_packages()))
    from dynamo.replay import run_trace_replay

    report = run_trace_replay(
        scene.trace,
        extra_engine_args=engine_arguments(scene.profile, scene.npz),
        num_workers=scene.n_workers,
        router_mode=ROUTINGS[scene.routing],
        trace_block_size=BLOCK_TRACE,
        capture_per_request=True,
    )
    return [served(number, row) for number, row in enumerate(report.per_request)]


def engine_arguments(profile: Profile, npz: Path) -> dict[str, object]:
    """Return what makes a worker of the mocker the machine that `profile` is of."""
    timing = {"type": "external", "provider": "dynamo_profile", "config": {"path": str(npz)}}
    return {
        "engine": {
            "num_gpu_blocks": profile.n_ctx // BLOCK,
            "block_size": BLOCK,
            "max_num_seqs": profile.n_seq,
            "max_num_batched_tokens": profile.n_batch,
            "timing_model": timing,
        }
    }


def served(number: int, row: dict[str, float]) -> Served:
    """Return a line of the mocker's report; of an answer it has the first and the last token."""
    if row["output_length"] != row["requested_output_length"]:
        raise RuntimeError(f"the mocker did not serve a request: {row['terminal_status']}")
    first_s, last_s = row["first_token_ms"] / 1e3, row["last_token_ms"] / 1e3
    return Served(
        number,
        row["arrival_time_ms"] / 1e3,
        n_cached=int(row["reused_input_tokens"]),
        times_s=np.linspace(first_s, last_s, int(row["output_length"])).tolist(),
    )


def write_steps(path: Path, profile: Profile) -> None:
    """Write a profile as the mocker reads it.

    It knows no number of streams, but their tokens in the cache and how many each has on average.
    So the table is a fine one, in which the quotient of the two is the number. It continues beyond
    one stream and the most, since the mocker interpolates there, too.
    """
    cells = depths = np.geomspace(1, profile.n_ctx, 800)
    n_streams = cells[:, None] / depths
    widths, seconds = (np.array(each) for each in zip(*profile.decode, strict=True))
    step_s = np.interp(n_streams, widths, seconds)
    if len(widths) > 1:
        slopes = np.diff(seconds) / np.diff(widths)
        step_s += slopes[0] * np.clip(n_streams - widths[0], -0.5, 0)
        step_s += slopes[-1] * np.clip(n_streams - widths[-1], 0, 1)
    n_tokens, prefill_s = zip(*profile.prefill, strict=True)
    np.savez(
        path,
        prefill_isl=np.array(n_tokens, float),
        prefill_ttft_ms=np.array(prefill_s) * 1e3,
        decode_active_kv_tokens=cells,
        decode_context_length=depths,
        decode_itl=(step_s + profile.row_cell_s * cells[:, None]) * 1e3,
    )


def write_trace(path: Path, n_workers: int) -> Path:
    """Write conversations with one system prompt, each turn with all earlier ones in it."""
    dice = random.Random(0)
    lines = sorted(
        line for n in range(N_CONVERSATIONS * n_workers) for line in conversation(n, dice)
    )
    keys = ("timestamp", "input_length", "output_length", "hash_ids")
    path.write_text(
        "".join(json.dumps(dict(zip(keys, line, strict=True))) + "\n" for line in lines)
    )
    return path


def conversation(number: int, dice: random.Random) -> Iterator[tuple[int, int, int, list[int]]]:
    at_s, hashes = dice.uniform(0, START_S), [0, 1]
    for turn in range(N_TURNS):
        hashes = [*hashes, *(2 + 2 * (N_TURNS * number + turn) + n for n in range(2))]
        yield round(at_s * 1e3), BLOCK_TRACE * len(hashes), dice.randint(50, 250), hashes
        at_s += dice.expovariate(1 / PAUSE_S)


SIMULATORS = {"gptoss": simulate, "gptoss, like vLLM": like_vllm, "the mocker": mocker}


if __name__ == "__main__":
    main()
