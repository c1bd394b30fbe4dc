"""Compare the joules that the server reports with power that is added up 20 times a second.

    python bench/energy.py FILE.gguf [--seconds 6]

Prints what one reading of a counter costs and how often it moves; watts before the load, idle with
the model loaded, and while 1 and 8 streams are answered; joules per token, as the answers report
them, and by the power of the GPUs alone. Nothing else may use the GPUs. Takes about a minute and a
load. Where nothing counts, it says so and measures tokens alone.
"""

import argparse
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pynvml
from peers import SAMPLING, check, free_url, load, serving, text, whole_words

from gptoss_local.machine.energy import Meters
from gptoss_local.machine.hardware import read_usable_gpus
from gptoss_local.settings import Settings
from gptoss_local.store import adopt_file

STREAMS = (1, 8)
N_PROMPT, N_ANSWER = 64, 256
IDLE_S, SETTLE_S = 4.0, 11.0  # the server calls a model idle after 10 s
PERIOD_S = 0.05


class Spent(NamedTuple):
    """Tokens and reported joules of some answers, and the time from the first to the last."""

    n_tokens: int
    joules: dict[str, float]
    begin_s: float
    end_s: float


class Power:
    """The power of all GPUs, read in a thread."""

    def __init__(self, handles: Sequence[Any]) -> None:
        self.samples: list[tuple[float, float]] = []
        self._handles = handles

    @contextmanager
    def sampled(self) -> Iterator["Power"]:
        is_over = threading.Event()

        def sample() -> None:
            while not is_over.wait(PERIOD_S):
                watts = sum(map(_watts, self._handles))
                self.samples.append((time.monotonic(), watts))

        thread = threading.Thread(target=sample)
        thread.start()
        try:
            yield self
        finally:
            is_over.set()
            thread.join()

    def joules(self, begin_s: float, end_s: float) -> float:
        """Return the energy of an interval, in straight lines between samples."""
        inside = [(s, w) for s, w in self.samples if begin_s <= s <= end_s]
        if not inside:
            return 0.0
        inside = [(begin_s, inside[0][1]), *inside, (end_s, inside[-1][1])]
        return sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in pairwise(inside))


def _watts(handle: Any) -> float:
    """Return the current power; some cards report the mean of a second instead."""
    try:
        (field,) = pynvml.nvmlDeviceGetFieldValues(handle, [pynvml.NVML_FI_DEV_POWER_INSTANT])
        if field.nvmlReturn == pynvml.NVML_SUCCESS and field.value.uiVal:
            return float(field.value.uiVal / 1e3)
    except (pynvml.NVMLError, AttributeError):
        pass
    return float(pynvml.nvmlDeviceGetPowerUsage(handle) / 1e3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--seconds", type=float, default=6, help="of each number of streams")
    arguments = parser.parse_args()
    gpus = read_usable_gpus()
    meters = Meters(gpus)
    print("; ".join(f"{name}: {how}" for name, how in meters.devices.items()) or "no counter")
    for name, why in meters.missing.items():
        print(f"{name} is not counted: {why}")
    handles = [
        pynvml.nvmlDeviceGetHandleByIndex(gpu.index)
        for gpu in gpus
        if f"gpu{gpu.index}" in meters.devices
    ]
    if meters.devices:
        print(cost("a reading of all counters", meters.read))
    for handle in handles:
        read = lambda handle=handle: pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)  # noqa: E731
        try:
            print(f"{cost('a reading of NVML alone', read)}; it moves every {moves(read):.0f} ms")
        except pynvml.NVMLError:
            print("NVML counts no energy of this card")
    with tempfile.TemporaryDirectory() as home, Power(handles).sampled() as power:
        if handles:
            idle("before the load", meters, power)
        measure(arguments, Path(home), meters, power)


def cost(what: str, read: Callable[[], object]) -> str:
    seconds = []
    for _ in range(200):
        begin_s = time.perf_counter()
        read()
        seconds.append(time.perf_counter() - begin_s)
    ordered = sorted(seconds)
    return f"{what}: median {1e6 * ordered[100]:.0f} us, p95 {1e6 * ordered[190]:.0f} us"


def moves(read: Callable[[], int]) -> float:
    """Return milliseconds between two changes of a counter."""
    times_s, last = [], read()
    end_s = time.monotonic() + 2
    while time.monotonic() < end_s:
        if (now := read()) != last:
            times_s.append(time.monotonic())
            last = now
    return 1e3 * statistics.median([b - a for a, b in pairwise(times_s)] or [float("inf")])


def idle(what: str, meters: Meters, power: Power) -> None:
    begin_s, before = time.monotonic(), meters.read()
    time.sleep(IDLE_S)
    after, end_s = meters.read(), time.monotonic()
    spent_s = end_s - begin_s
    counted = ", ".join(f"{k} {(after[k] - before[k]) / spent_s:.1f} W" for k in before)
    gpus_w = power.joules(begin_s, end_s) / spent_s
    print(f"{what}: counted {counted}; GPUs by power {gpus_w:.1f} W", flush=True)


def measure(arguments: argparse.Namespace, home: Path, meters: Meters, power: Power) -> None:
    words = whole_words(arguments.model)
    name = adopt_file(arguments.model, Settings(home=home)).name
    url = free_url()
    environment = {
        "GPTOSS_HOME": str(home),
        "GPTOSS_PORT": url.rpartition(":")[2],
        "GPTOSS_NUM_PARALLEL": str(max(STREAMS)),
        "GPTOSS_PREFIX_DISK_BYTES": "0",
    }
    with serving([sys.executable, "-m", "gptoss_local", "serve"], environment, f"{url}/health"):
        print(f"loaded in {load(url, name):.1f} s", flush=True)
        answer_for(0, 1, url, name, words)  # warms up
        for n_streams in STREAMS:
            before = meters.read()
            spent = answer_for(arguments.seconds, n_streams, url, name, words)
            after = meters.read()
            counted_j = sum(v - before[k] for k, v in after.items() if k.startswith("gpu"))
            print(report(n_streams, spent, counted_j, power), flush=True)
        if meters.devices:
            time.sleep(SETTLE_S)
            idle("idle, loaded", meters, power)
            (model,) = check(httpx.get(f"{url}/api/ps", trust_env=False)).json()["models"]
            print(f"/api/ps: {model.get('energy')}")


def answer_for(seconds: float, n_streams: int, url: str, name: str, words: list[str]) -> Spent:
    """Keep some streams answering for a time; each ends with a whole answer."""
    found: list[dict[str, Any]] = []
    begin_s = time.monotonic()

    def stream(seed: int) -> None:
        options = SAMPLING | {"num_predict": N_ANSWER}
        with httpx.Client(base_url=url, timeout=600, trust_env=False) as client:
            while True:
                prompt = text(words, N_PROMPT, seed + len(found))
                body = {"model": name, "prompt": prompt, "raw": True, "options": options}
                reply = client.post("/api/generate", json=body | {"stream": False})
                found.append(check(reply).json())
                if time.monotonic() - begin_s >= seconds:
                    return

    with ThreadPoolExecutor(n_streams) as threads:
        list(threads.map(stream, range(0, 1000 * n_streams, 1000)))
    joules: Counter[str] = Counter()
    for frame in found:
        joules.update(frame.get("joules", {}))
    n_tokens = sum(frame.get("eval_count", 0) for frame in found)
    return Spent(n_tokens, dict(joules), begin_s, time.monotonic())


def report(n_streams: int, spent: Spent, counted_j: float, power: Power) -> str:
    spent_s = spent.end_s - spent.begin_s
    shown = f"{n_streams} streams: {spent.n_tokens / spent_s:.1f} tokens/s"
    if not spent.joules:
        return f"{shown}, no joules"
    gpus_j = sum(j for name, j in spent.joules.items() if name.startswith("gpu"))
    power_j = power.joules(spent.begin_s, spent.end_s)
    devices = ", ".join(f"{name} {j / spent.n_tokens:.3f}" for name, j in spent.joules.items())
    shown += f", {sum(spent.joules.values()) / spent.n_tokens:.3f} J/token ({devices})"
    if not power_j:
        return shown
    return (
        f"{shown}, {power_j / spent_s:.1f} W; GPUs in joules: answers {gpus_j:.1f}, "
        f"counter {counted_j:.1f}, power {power_j:.1f} (answers/power {gpus_j / power_j:.3f})"
    )


if __name__ == "__main__":
    main()
