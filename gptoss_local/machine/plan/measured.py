"""Keep measurements of loads, a JSON file per model, machine and version of llama.cpp."""

import hashlib
import math
import time
from itertools import pairwise
from pathlib import Path

import msgspec

from gptoss_local.base.types import OffloadTimes, StepTimes
from gptoss_local.base.whole_file import write_whole
from gptoss_local.machine.hardware import Machine, llama_version
from gptoss_local.machine.plan.options import Attempt
from gptoss_local.machine.plan.result import Plan
from gptoss_local.machine.plan.speed import Speed

_VERSION = 2
_CLEARLY = 1.1  # a single token must be so much faster with experts brought to the GPU
_NOTABLE = 1.05  # another number of threads must be so much faster than the planned one
_STEPS_AGE_S = 7 * 86_400.0
"""Step times expire after this, as the machine may have been busy when they were measured."""


class LoadOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of the first successful load; `buffer_bytes` are llama.cpp's, by place."""

    plan_id: str
    attempt: Attempt
    buffer_bytes: dict[str, int]


class Steps(StepTimes, frozen=True, kw_only=True):
    plan_id: str
    measured_at_s: float

    @classmethod
    def now(cls, plan: Plan, times: StepTimes) -> "Steps":
        fields = msgspec.structs.asdict(times)
        return cls(**fields, plan_id=plan_id(plan), measured_at_s=time.time())

    @property
    def times(self) -> StepTimes:
        return StepTimes(self.seconds, self.switch_s, self.streams, self.turn_s)

    def are_of(self, plan: Plan) -> bool:
        age_s = time.time() - self.measured_at_s
        return self.plan_id == plan_id(plan) and 0 <= age_s < _STEPS_AGE_S


class Tuning(msgspec.Struct, frozen=True, kw_only=True):
    """The measurements of a first load or of `gptoss tune`, and their consequences.

    Attributes:
        decode, prefill: Tokens a second by threads.
        offload_min_batch: Tokens from which the GPU is faster; None: not measured.
        link_bytes_s: Of experts on their way to the GPU, at least; None: not measured.
    """

    uses_gpu: bool
    decode: tuple[tuple[int, float], ...]
    prefill: tuple[tuple[int, float], ...]
    n_threads_decode: int
    n_threads_prefill: int
    decode_factor: float
    prefill_factor: float
    offload: OffloadTimes = ()
    offload_min_batch: int | None = None
    link_bytes_s: float | None = None

    def correct(self, speed: Speed) -> Speed:
        return msgspec.structs.replace(
            speed,
            prefill_tok_s=speed.prefill_tok_s * self.prefill_factor,
            decode_tok_s=speed.decode_tok_s * self.decode_factor,
            read_s=speed.read_s / self.prefill_factor,
            write_s=speed.write_s / self.decode_factor,
            offload_min_batch=self.offload_min_batch or speed.offload_min_batch,
        )


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """Known figures, None if missing; after `tuning_failed` no load tries again."""

    version: int = _VERSION
    outcome: LoadOutcome | None = None
    steps: Steps | None = None
    tuning: Tuning | None = None
    tuning_failed: bool = False

    @property
    def attempt(self) -> Attempt:
        return self.outcome.attempt if self.outcome else Attempt()


def best_threads(tries: tuple[tuple[int, float], ...], planned: int) -> tuple[int, float]:
    """Return the threads to use and their tokens/s: the planned ones unless others are faster."""
    best = max(tries, key=lambda each: each[1])
    at_planned = next((each for each in tries if each[0] == planned), best)
    return best if best[1] > _NOTABLE * at_planned[1] else at_planned


def break_even(offload: OffloadTimes, n_experts_used: int) -> int | None:
    """Return the number of tokens from which the GPU stays faster; None: nothing was measured.

    Interpolates between sizes; if the GPU is never faster, returns twice the largest one. For one
    token it must be faster by a tenth, or else for more than `n_experts_used`: llama.cpp compares
    the number with rows, which are `n_experts_used` a token where biases are added. With 2 to 4 the
    GPU would add them between the CPU's experts. PERF: H200: answers 0.85 to 0.94 times as fast as
    llama-server's with 3 and 4, 1.01 to 1.4 with 1 and 5.

    Source: `get_op_batch_size`, ggml-cuda.cu.
    """
    if not offload:
        return None
    gains = [
        (n, host_s - (_CLEARLY if n == 1 else 1) * gpu_s)
        for n, host_s, gpu_s in offload
        if host_s is not None
    ]
    found = 2 * gains[-1][0]
    for (below, loss), (n, gain) in reversed(list(pairwise([(0, math.inf), *gains]))):
        if gain <= 0:
            break
        found = n if loss > 0 else math.ceil(below + (n - below) * -loss / (gain - loss))
    return found if found == 1 else max(found, n_experts_used + 1)


def plan_id(plan: Plan) -> str:
    """Return an id that is equal for plans with equal step costs, whatever their estimates."""
    load = plan.shape, plan.placement, plan.load_mode, plan.repacks
    facts = *load, plan.speed.offload_min_batch, plan.n_threads_prefill, plan.n_threads_decode
    return hashlib.sha256(msgspec.json.encode(facts)).hexdigest()[:16]


def measured_path(cache_dir: Path, weights_id: str, machine: Machine) -> Path:
    gpus = [(gpu.name, gpu.uuid, gpu.total_bytes) for gpu in machine.gpus]
    library = llama_version(), machine.backend
    cpu = machine.platform, machine.n_cores, machine.total_bytes, machine.driver
    # A later version of gptoss finds its own file, and keeps it after a downgrade.
    key = msgspec.json.encode((_VERSION, weights_id, gpus, library, cpu))
    return cache_dir / "measured" / f"{hashlib.sha256(key).hexdigest()[:24]}.json"


def read_measured(path: Path) -> Measured:
    try:
        measured = msgspec.json.decode(path.read_bytes(), type=Measured)
    except (OSError, msgspec.MsgspecError):
        return Measured()
    return measured if measured.version == _VERSION else Measured()


def write_measured(path: Path, measured: Measured) -> None:
    write_whole(path, msgspec.json.format(msgspec.json.encode(measured)).decode())
