"""Put a server under load: many streams and clients that vanish, on nano.

    python bench/load.py [--seconds N] [--streams N] [--kill-share P]

Starts a server in its own home. For `--seconds`, `--streams` clients at a time each ask for a
stream. A share of them closes the connection at some point; all others must get all of their
tokens. Afterwards the engine must hold no cell of a running sequence, its books must be in order,
and file descriptors and memory must be about what they were after the first seconds. Then measures
what the server adds to a token with 1, 8 and 64 streams: its own processor time, and the time
between tokens of a stream against the engine's own clock.
"""

import argparse
import asyncio
import json
import random
import statistics
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import httpx
import psutil
from peers import gptoss

N_TOKENS = 40
WARM_UP_S = 5.0


@dataclass
class Tally:
    """Results of all clients."""

    ends: Counter[str] = field(default_factory=Counter)
    first_s: list[float] = field(default_factory=list)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--kill-share", type=float, default=0.3)
    arguments = parser.parse_args()
    with gptoss(None, {}) as (url, _):
        (server,) = psutil.Process().children()
        asyncio.run(measure(url, server, arguments))


async def measure(url: str, server: psutil.Process, arguments: argparse.Namespace) -> None:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    async with httpx.AsyncClient(
        base_url=url, timeout=300, trust_env=False, limits=limits
    ) as client:
        await load(client, server, WARM_UP_S, arguments)  # what grows once, has
        before = resources(server)
        tally = await load(client, server, arguments.seconds, arguments)
        await asyncio.sleep(1)
        report_load(tally, before, resources(server), await engine_stats(client))
        for n_streams in (1, 8, 64):
            await latency(client, server, n_streams)


async def load(
    client: httpx.AsyncClient, server: psutil.Process, seconds: float, arguments: argparse.Namespace
) -> Tally:
    tally, end_s = Tally(), time.monotonic() + seconds
    dice = random.Random(0)

    async def keep_asking() -> None:
        while time.monotonic() < end_s:
            leaves_after = dice.randrange(N_TOKENS) if dice.random() < arguments.kill_share else -1
            await ask(client, tally, dice.randrange(10**6), leaves_after)

    await asyncio.gather(*(keep_asking() for _ in range(arguments.streams)))
    return tally


async def ask(
    client: httpx.AsyncClient, tally: Tally, number: int, leaves_after: int = -1
) -> tuple[int, float, dict[str, Any]]:
    """Read one stream; return frames, seconds from first to last token, and the last frame."""
    body = {
        "model": "nano",
        "messages": [{"role": "user", "content": f"Count from {number} to {number + 900}."}],
        "think": False,
        "options": {"num_predict": N_TOKENS, "temperature": 0},
    }
    start_s, first_s, last_s, n_frames, frame = time.perf_counter(), 0.0, 0.0, 0, {}
    async with client.stream("POST", "/api/chat", json=body) as reply:
        if reply.status_code != 200:
            raise SystemExit(f"a request failed: {(await reply.aread()).decode()}")
        async for line in reply.aiter_lines():
            frame = json.loads(line)
            last_s = time.perf_counter()
            if not n_frames:
                first_s = last_s
                tally.first_s.append(first_s - start_s)
            n_frames += 1
            if n_frames == leaves_after:
                tally.ends["left"] += 1
                return n_frames, last_s - first_s, frame
    if frame.get("done_reason") not in ("length", "stop"):
        raise SystemExit(f"a request failed: {frame}")
    tally.ends["complete"] += 1
    return n_frames, last_s - first_s, frame


@dataclass
class Resources:
    n_fds: int
    server_bytes: int
    engine_bytes: int


def resources(server: psutil.Process) -> Resources:
    (engine,) = server.children()
    n_fds = server.num_fds() if hasattr(server, "num_fds") else 0
    return Resources(n_fds, server.memory_info().rss, engine.memory_info().rss)


async def engine_stats(client: httpx.AsyncClient) -> dict[str, float]:
    stats = {}
    for line in (await client.get("/metrics")).text.splitlines():
        if line.startswith(("gptoss_engine_", "gptoss_answers_active")):
            name, _, value = line.rpartition(" ")
            stats[name.partition("{")[0]] = float(value)
    return stats


def report_load(tally: Tally, before: Resources, after: Resources, stats: dict[str, float]) -> None:
    first_ms = [1e3 * s for s in tally.first_s]
    percent = statistics.quantiles(first_ms, n=100)
    print(f"ends: {dict(tally.ends)}")
    print(f"first byte: median {percent[49]:.0f} ms, p99 {percent[98]:.0f} ms")
    for name in ("n_fds", "server_bytes", "engine_bytes"):
        print(f"{name}: {getattr(before, name)} -> {getattr(after, name)}")
    for name in ("sequences_running", "sequences_waiting", "cache_cells_used"):
        assert stats[f"gptoss_engine_{name}"] == 0, f"{name} leaked: {stats}"
    assert stats["gptoss_answers_active"] == 0
    assert after.n_fds <= before.n_fds + 8, "file descriptors leak"
    print("no stream was lost, no cell or file descriptor leaked")


async def latency(client: httpx.AsyncClient, server: psutil.Process, n_streams: int) -> None:
    """Measure what a token costs outside the engine, with `n_streams` that run or wait."""
    tally, answers = Tally(), []
    cpu_s = sum(server.cpu_times()[:2])
    for _ in range(max(1, 32 // n_streams)):  # processor time counts in steps of 10 ms
        answers += await asyncio.gather(
            *(ask(client, tally, 10**6 + number) for number in range(n_streams))
        )
    cpu_s = sum(server.cpu_times()[:2]) - cpu_s
    n_tokens = sum(frame["eval_count"] for _, _, frame in answers)
    added_us = [
        (seconds - frame["eval_duration"] / 1e9) / max(frame["eval_count"] - 1, 1) * 1e6
        for _, seconds, frame in answers
    ]
    print(
        f"{n_streams} streams: {cpu_s / n_tokens * 1e6:.0f} us of the server's processor a token; "
        f"a client's token comes {statistics.median(added_us):+.0f} us (median), "
        f"{max(added_us):+.0f} us (worst) slower than the engine's clock says"
    )


if __name__ == "__main__":
    main()
