"""Describe a plan: how to load a model, its memory, its expected speed."""

import msgspec

from gptoss_local.base.types import ContextParams, LoadMode, ModelParams
from gptoss_local.machine.plan.memory import Shape
from gptoss_local.machine.plan.placement import Placement
from gptoss_local.machine.plan.speed import Speed


class HostMemory(msgspec.Struct, frozen=True, kw_only=True):
    """The RAM that a plan uses, in bytes.

    Attributes:
        mapped: Weights in the page cache, which the system may drop and read again.
        weights: Weights in memory that the system cannot take back.
        is_pinned: `weights` is locked for fast copies to a GPU.
    """

    mapped: int = 0
    weights: int = 0
    cache: int = 0
    compute: int = 0
    engine: int = 0
    checkpoints: int = 0
    is_pinned: bool = False

    @property
    def total(self) -> int:
        owned = self.weights + self.cache + self.compute + self.engine + self.checkpoints
        return self.mapped + owned

    def missing_share(self, available_bytes: int) -> float:
        """Return the share of the host's weights that is read from the disk again at each use."""
        missing_bytes = min(self.mapped, max(0, self.total - available_bytes))
        return missing_bytes / max(1, self.mapped + self.weights)


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The way to load a model, and what to expect of it.

    Attributes:
        n_gpus: The number of those. Without any, llama.cpp chooses, as it may support others.
        vram_share: Of the weights without the embedding table, which is always on the host.
    """

    shape: Shape
    placement: Placement
    host: HostMemory
    n_threads_prefill: int
    n_threads_decode: int
    device_names: tuple[str, ...] = ()
    n_gpus: int
    vram_share: float
    speed: Speed

    @property
    def uses_gpu(self) -> bool:
        return self.placement.n_gpu_layers > 0

    @property
    def devices(self) -> tuple[str, ...] | None:
        """Return llama.cpp's names of the GPUs to use; None leaves it to llama.cpp."""
        if not self.n_gpus:
            return None
        layers = self.placement.layers_per_gpu
        return tuple(name for name, n in zip(self.device_names, layers, strict=False) if n)

    @property
    def tensor_split(self) -> tuple[int, ...] | None:
        return tuple(n for n in self.placement.layers_per_gpu if n) if self.uses_gpu else None

    @property
    def load_mode(self) -> LoadMode:
        if not self.uses_gpu:
            return "auto"
        return "pinned" if self.host.is_pinned else "mmap"

    @property
    def repacks(self) -> bool:
        """Return whether llama.cpp may copy experts into an order that is faster for CPUs."""
        return self.uses_gpu or self.host.weights > 0

    @property
    def model_params(self) -> ModelParams:
        return ModelParams(
            n_gpu_layers=self.placement.n_gpu_layers,
            devices=self.devices,
            tensor_overrides=self.placement.tensor_overrides(self.devices or ()),
            load_mode=self.load_mode,
            tensor_split=self.tensor_split,
            repack=self.repacks,
        )

    @property
    def context_params(self) -> ContextParams:
        return self.shape.context_params(
            n_threads_prefill=self.n_threads_prefill, n_threads_decode=self.n_threads_decode
        )
