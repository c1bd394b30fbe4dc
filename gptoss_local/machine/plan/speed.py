"""Estimates the speed of a placement, and its bound, to choose one.

Decode reads the weights of a token once, wherever they are; prefill computes, and copies the host's
experts to the GPU once per ubatch. Constants are fitted; unreported facts are assumed and marked.
"""

import math
from collections.abc import Iterator
from typing import Literal

import msgspec

from gptoss_local.machine.hardware import Machine
from gptoss_local.machine.nvidia import Gpu
from gptoss_local.machine.plan.facts import ModelFacts
from gptoss_local.machine.plan.memory import MAX_HOST_BATCH, Shape
from gptoss_local.machine.plan.options import BALANCED, N_ANSWER, N_PROMPT, Objective
from gptoss_local.machine.plan.placement import Placement

Bound = Literal["GPU memory", "GPU compute", "RAM", "CPU", "PCIe", "disk"]

# Share of a memory's peak bandwidth that decode gets, and seconds of a token per layer besides:
# kernels' starts, dependencies. By compute capability, fitted to published figures in
# `tests/plan/test_speed.py`; others are as Ampere, and so is RAM.
_READ, _LAYER_S = 0.7, 100e-6
_GENERATIONS = {
    (8, 9): (0.69, 57e-6),  # Ada
    (9, 0): (0.70, 86e-6),  # Hopper
    (12, 0): (0.61, 36e-6),  # Blackwell
    (12, 1): (0.87, 36e-6),  # GB10
}
# Of a GPU's time for a token's experts, added by each token more of a step: they share no reads.
# PERF: H100, ms a step of 1, 4, 8 and 16 sequences: 20b 3.2, 6.2, 10.2, 18.6; 120b 4.7, 9.1, 14.7,
# 40.7.
_ROW = 1.9
_SPLIT_S = 60e-6  # and per layer whose experts are on the host: the hand-over; assumed per next GPU
_HOST_S = 2.5e-3  # and once if there is such a layer. PERF: H200, 20b over HTTP, 5 and 14 layers
# Per layer that is on the host as a whole, for attention there, after N_PROMPT tokens. PERF: H200,
# 16 cores, 20b, 5 and 15 such layers: 23 and 63 ms a token, where 13 and 29 were expected without.
_HOST_LAYER_S = 2.2e-3
_PINNED, _PAGEABLE = 0.82, 0.25  # share of PCIe's peak; PERF: H200, 46 to 56 and 13 of 63 GB/s
_LANE_BYTES_S = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.97e9, 5: 3.94e9, 6: 7.56e9}
_CORE_BYTES_S = 7e9  # weights that one core can read and multiply while it decodes
_CPU_PARAMS_S = 1.8e10  # MXFP4 weights times tokens, per core. PERF: 1.5 on the H200's Xeon
# Of a prompt's token per token of its ubatch: masks, made on one core, it seems. PERF: H200,
# 20b in VRAM, 4,096 tokens in ubatches of 1,024, 2,048 and 4,096: 13.4, 13.4 and 10.9 k tokens/s.
_MASK_S = 7e-9
_MIN_OFFLOAD = 8  # tokens; whether fewer are faster on the GPU is left to the first load
_DISK_BYTES_S = {"nvme": 2.5e9, "ssd": 0.45e9, "rotating": 0.1e9}

# Assumed where the machine does not report it.
RAM_BYTES_S = 75e9  # two channels of DDR5-4800
_VRAM_BYTES_S = 400e9
_SHARED_BYTES_S = 100e9  # RAM that a GPU shares: Orin NX 102 GB/s, Orin Nano 68
_KNOWN_BYTES_S = {"GB10": 273e9, "Thor": 273e9}  # of data sheets: the driver does not say
_GPU_CORES_HZ = 15e12  # cores times clock
_PCIE_BYTES_S = 15.75e9  # generation 4, 8 lanes


class HostWeights(msgspec.Struct, frozen=True, kw_only=True):
    """The host's weights: locked for copies to a GPU, and the share read from the disk again."""

    pinned: bool = False
    missing_share: float = 0.0


class Speed(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens a second of one stream, and their bounds.

    Attributes:
        offload_min_batch: Tokens from which it is faster to bring experts to the GPU.
        read_s, write_s: For N_PROMPT tokens read and N_ANSWER written; of several requests at the
            same time, each one's share.
    """

    prefill_tok_s: float
    prefill_bound: Bound
    decode_tok_s: float
    decode_bound: Bound
    read_s: float
    write_s: float
    offload_min_batch: int = 32
    assumed: tuple[str, ...] = ()

    @property
    def request_s(self) -> float:
        return self.read_s + self.write_s


def estimate_speed(
    facts: ModelFacts,
    shape: Shape,
    placement: Placement,
    machine: Machine,
    host: HostWeights,
    objective: Objective = BALANCED,
) -> Speed:
    estimate = _Estimate(facts, shape, placement, machine, host)
    prefill_s, decode_s = estimate.prefill_s(), estimate.step_s(1)
    n_rows = objective.n_rows(shape.n_seq, shape.n_ctx)
    answer_s = decode_s if n_rows == 1 else estimate.step_s(n_rows)
    return Speed(
        prefill_tok_s=N_PROMPT / sum(prefill_s.values()),
        prefill_bound=max(prefill_s, key=lambda bound: prefill_s[bound]),
        decode_tok_s=1 / sum(decode_s.values()),
        decode_bound=max(decode_s, key=lambda bound: decode_s[bound]),
        read_s=sum(prefill_s.values()),
        write_s=N_ANSWER * sum(answer_s.values()) / n_rows,
        offload_min_batch=estimate.min_batch,
        assumed=tuple(estimate.assumed()),
    )


class _Estimate:
    def __init__(
        self,
        facts: ModelFacts,
        shape: Shape,
        placement: Placement,
        machine: Machine,
        host: HostWeights,
    ) -> None:
        self.facts, self.placement, self.machine = facts, placement, machine
        self.n_ubatch = min(shape.n_batch, shape.n_ctx)
        n = sum(placement.layers_per_gpu)
        pairs = zip(machine.usable_gpus, placement.layers_per_gpu, strict=False)
        # they take turns, each with its share of the layers
        self.gpus = [(gpu, count / n) for gpu, count in pairs if count]
        self.expert_bytes = placement.expert_bytes_on_host(facts)
        self.dense_bytes = placement.dense_bytes_on_host(facts)
        self.host_share = self.expert_bytes / facts.expert_bytes
        self.missing_share = host.missing_share
        self.disk_bytes_s = _DISK_BYTES_S[machine.disk or "ssd"]
        self.cpu_params_s = _CPU_PARAMS_S * (machine.n_cores or 4)
        by_ram = (machine.ram_bytes_s or RAM_BYTES_S) * _READ
        by_cores = (machine.n_performance_cores or machine.n_cores or 8) * _CORE_BYTES_S
        self.host: Bound = "RAM" if by_ram <= by_cores else "CPU"
        self.host_bytes_s = min(by_ram, by_cores)
        self.link_bytes_s, self.min_batch = math.inf, 32
        if self.gpus:
            link_bytes_s = _link_bytes_s(self.gpus[0][0])
            self.link_bytes_s = link_bytes_s * (_PINNED if host.pinned else _PAGEABLE)
            self.min_batch = self._break_even()

    def step_s(self, n_rows: int) -> dict[Bound, float]:
        """Return the seconds of a decoding step of so many answers, after N_PROMPT tokens."""
        facts, host = self.facts, self.host
        n_host = len(self.placement.host_experts) + len(self.placement.host_parts)
        n_whole = self.placement.n_host_layers(facts) if self.gpus else 0
        hand_over_s = n_host * _SPLIT_S + (_HOST_S if n_host or n_whole else 0)
        hand_over_s += n_whole * _HOST_LAYER_S
        host_s = self._used_on_host(n_rows) / self.host_bytes_s
        n_params = facts.n_layers * facts.n_expert_params
        host_s += (n_rows - 1) * self.host_share * n_params / self.cpu_params_s
        spent: dict[Bound, float] = {host: host_s + hand_over_s}
        if self.gpus and n_rows >= self.min_batch and n_rows > 1:
            used_bytes = self.expert_bytes * _used_share(facts, n_rows)
            spent = {host: hand_over_s, "PCIe": used_bytes / self.link_bytes_s}
        cell_bytes = 2 * facts.n_heads_kv * facts.n_key * 2
        cache_bytes = n_rows * cell_bytes * N_PROMPT * facts.n_layers / 2
        if self.gpus:
            used_bytes = facts.expert_bytes * facts.used_fraction
            dense_bytes = facts.weight_bytes - facts.input_bytes - facts.expert_bytes
            all_bytes = dense_bytes + used_bytes + cache_bytes - self._used_on_host(1)
            row_bytes = (n_rows - 1) * _ROW * (1 - self.host_share) * used_bytes
            spent["GPU memory"] = (len(self.gpus) - 1) * _SPLIT_S
            for gpu, share in self.gpus:
                read, layer_s = _GENERATIONS.get(
                    gpu.compute_capability or (0, 0), (_READ, _LAYER_S)
                )
                read_s = (all_bytes / read + row_bytes / _READ) / _memory_bytes_s(gpu)
                spent["GPU memory"] += share * (read_s + facts.n_layers * layer_s)
        else:
            spent[host] += cache_bytes / self.host_bytes_s + facts.n_layers * _LAYER_S
        if self.missing_share:
            missing_bytes = self.missing_share * self._used_on_host(n_rows)
            spent["disk"] = missing_bytes / self.disk_bytes_s
        return spent

    def prefill_s(self) -> dict[Bound, float]:
        facts, n_ubatch = self.facts, self.n_ubatch
        spent: dict[Bound, float] = {"GPU compute": 0.0, "PCIe": 0.0, "CPU": 0.0}
        if not self.gpus:
            spent = {"CPU": N_PROMPT * facts.n_active_params / self.cpu_params_s}
        for n, n_steps in ((n_ubatch, N_PROMPT // n_ubatch), (N_PROMPT % n_ubatch, 1)):
            if not n or not self.gpus:
                continue
            spent["GPU compute"] += n_steps * n * facts.n_active_params / self._gpu_params_s(n)
            spent["CPU"] += n_steps * n * n * _MASK_S
            if n >= self.min_batch:
                used_bytes = self.expert_bytes * _used_share(facts, n)
                spent["PCIe"] += n_steps * used_bytes / self.link_bytes_s
            else:
                n_params = self.host_share * facts.n_layers * n * facts.n_expert_params
                spent["CPU"] += n_steps * n_params / self.cpu_params_s
        if self.missing_share:
            n_steps = math.ceil(N_PROMPT / n_ubatch)
            missing_bytes = self.missing_share * (self.expert_bytes + self.dense_bytes)
            spent["disk"] = n_steps * missing_bytes / self.disk_bytes_s
        return spent

    def _used_on_host(self, n_rows: int) -> float:
        """Return the bytes of the host's weights that a step uses, if tokens choose evenly."""
        used = 1 - (1 - self.facts.used_fraction) ** n_rows
        return self.expert_bytes * used + self.dense_bytes

    def _break_even(self) -> int:
        """Return the smallest batch whose experts are brought over faster than the host computes.

        Experts are taken as chosen evenly, unlike in `_used_share`: the most that may have to come.
        PERF: H200, 16 cores, PCIe 5 x16, 14 layers of 20b: 4, 8 and 16 tokens take 148, 217 and 374
        ms on the host, and 40, 56 and 66 with the experts brought over.
        """
        facts = self.facts
        layer_bytes = facts.expert_bytes / facts.n_layers
        for n in range(_MIN_OFFLOAD, MAX_HOST_BATCH):
            used_bytes = layer_bytes * (1 - (1 - facts.used_fraction) ** n)
            cpu_s = used_bytes / self.host_bytes_s + n * facts.n_expert_params / self.cpu_params_s
            if used_bytes / self.link_bytes_s < cpu_s:
                return n
        return MAX_HOST_BATCH

    def _gpu_params_s(self, n_tokens: int) -> float:
        """Return weights times tokens a second. Fitted: RTX 3090, 4090, 5080, H200 within 25 %."""
        seconds = 0.0
        for gpu, share in self.gpus:
            rate = (gpu.n_cores * gpu.clock_hz) if gpu.n_cores and gpu.clock_hz else _GPU_CORES_HZ
            major = (gpu.compute_capability or (8, 0))[0]
            per_core = {9: 1.5, 10: 1.5, 12: 1.1}.get(major, 0.87)
            seconds += share / (rate * per_core)
        return n_tokens / (n_tokens + 200) / seconds

    def assumed(self) -> Iterator[str]:
        if self.expert_bytes and self.machine.ram_bytes_s is None:
            yield f"RAM of {RAM_BYTES_S / 1e9:.0f} GB/s"
        for gpu, _ in self.gpus:
            if gpu.bandwidth_bytes_s is None:
                yield f"{gpu.name}: memory of {_memory_bytes_s(gpu) / 1e9:.0f} GB/s"
            if gpu.n_cores is None or gpu.clock_hz is None:
                yield f"{gpu.name}: {_GPU_CORES_HZ / 1e12:.0f} T core cycles/s"
            if not gpu.shares_ram and (gpu.pcie_generation is None or gpu.pcie_width is None):
                yield f"{gpu.name}: PCIe of {math.floor(_PCIE_BYTES_S / 1e9)} GB/s"


def _used_share(facts: ModelFacts, n_tokens: int) -> float:
    """Return the share of a layer's experts that `n_tokens` use.

    Tokens choose so unevenly that a quarter of them count. PERF: 120b, 64, 256 and 512 tokens move
    0.31, 0.49 (H200) and some 0.75 (RTX 3090) of the experts; evenly, it would be 0.87, 1 and 1.
    """
    return float(1 - (1 - facts.used_fraction) ** (n_tokens / 4))


def _memory_bytes_s(gpu: Gpu) -> float:
    """Return a GPU's peak memory bandwidth, assumed where neither driver nor sheet says."""
    known = (rate for name, rate in _KNOWN_BYTES_S.items() if name in gpu.name.split())
    assumed = _SHARED_BYTES_S if gpu.shares_ram else _VRAM_BYTES_S
    return gpu.bandwidth_bytes_s or next(known, assumed)


def _link_bytes_s(gpu: Gpu) -> float:
    if gpu.shares_ram:
        return _memory_bytes_s(gpu) / 2  # read and written in one memory
    if gpu.pcie_generation is None or gpu.pcie_width is None:
        return _PCIE_BYTES_S
    return _LANE_BYTES_S.get(gpu.pcie_generation, _LANE_BYTES_S[6]) * gpu.pcie_width
