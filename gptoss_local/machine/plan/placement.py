"""Place the weights: whole layers of experts first, then single tensors of one more layer.

Every token reads attention, norms, routers, cache and head, so these stay on GPUs. It reads an
eighth (20b) or a 32nd (120b) of the experts, so they move to the host.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations

import msgspec

from gptoss_local.machine.plan.facts import EXPERT_PARTS, ModelFacts
from gptoss_local.machine.plan.memory import (
    Shape,
    cache_bytes,
    compute_bytes,
    device_sampling_bytes,
    expert_copy_bytes,
    f16_cache_bytes,
    host_map_bytes,
    runtime_bytes,
)

_Parts = tuple[int, tuple[str, ...]]
"""A layer, and those of its `EXPERT_PARTS` that are on the host."""
_MANY = 4  # cards; trying every choice of more takes seconds


class DeviceMemory(msgspec.Struct, frozen=True, kw_only=True):
    weights: int = 0
    cache: int = 0
    compute: int = 0
    runtime: int = 0

    @property
    def total(self) -> int:
        return self.weights + self.cache + self.compute + self.runtime


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """The places of the weights.

    Attributes:
        n_gpu_layers: Layers on GPUs, the last ones, as llama.cpp counts: the head is one, too.
        host_experts: Layers of GPUs whose experts are all on the host.
        host_parts: For at most one layer of each GPU.
    """

    n_gpu_layers: int
    layers_per_gpu: tuple[int, ...]
    host_experts: tuple[int, ...] = ()
    host_parts: tuple[_Parts, ...] = ()
    gpus: tuple[DeviceMemory, ...] = ()

    @property
    def shares_experts(self) -> bool:
        return bool(self.host_experts or self.host_parts)

    def n_host_layers(self, facts: ModelFacts) -> int:
        """Count the first layers, entirely on the host, with their cache."""
        return min(facts.n_layers, facts.n_layers + 1 - self.n_gpu_layers)

    def expert_bytes_on_host(self, facts: ModelFacts) -> int:
        whole = {*range(self.n_host_layers(facts)), *self.host_experts}
        n_bytes: int = sum(facts.layer_expert_bytes[layer] for layer in whole)
        for layer, parts in self.host_parts:
            n_bytes += sum(facts.layers[layer].expert_bytes[EXPERT_PARTS.index(p)] for p in parts)
        return n_bytes

    def dense_bytes_on_host(self, facts: ModelFacts) -> int:
        """Count the other bytes of whole layers on the host, and of the head if it is there."""
        n_bytes = sum(layer.dense_bytes for layer in facts.layers[: self.n_host_layers(facts)])
        return n_bytes + (0 if self.n_gpu_layers else facts.output_bytes)

    def tensor_overrides(self, devices: Sequence[str]) -> tuple[tuple[str, str], ...]:
        """Return patterns for `ModelParams`; `devices` are llama.cpp's names of the GPUs used."""
        found = []
        if self.host_experts:
            layers = "|".join(map(str, self.host_experts))
            found.append((rf"^blk\.({layers})\.ffn_(gate|up|down)_exps", "CPU"))
        for layer, parts in self.host_parts:
            found.append((rf"^blk\.{layer}\.ffn_({'|'.join(parts)})_exps", "CPU"))
        if len(devices) > 1 and not found:
            # Several GPUs and no override switch on pipelining of ubatches, of which our steps
            # have one, for a multiple of the buffers. The head is there anyway.
            found.append((r"^output\.weight$", devices[-1]))
        return tuple(found)


HOST_ONLY = Placement(n_gpu_layers=0, layers_per_gpu=())


def iter_placements(  # noqa: PLR0913 (what decides, and what was asked for)
    facts: ModelFacts,
    shape: Shape,
    budgets: Sequence[int],
    *,
    kinds: Sequence[object] = (),
    n_gpu_layers: int | None = None,
    n_cpu_moe: int | None = None,
    copies_host: bool = True,
) -> Iterator[Placement]:
    """Yield the ways to put as many experts on the GPUs as fit, for one shape.

    `budgets` are usable bytes; of GPUs equal in `kinds`, too, one stands for all. The experts of
    the first `n_cpu_moe` layers stay on the host. With `copies_host`, pinned weights are a copy in
    buffers of the driver.
    """
    n = facts.n_layers + 1 if n_gpu_layers is None else min(n_gpu_layers, facts.n_layers + 1)
    dealer = _Dealer(
        facts=facts,
        caches=[cache_bytes(facts, shape, layer) for layer in range(facts.n_layers)],
        compute=compute_bytes(facts, shape) + f16_cache_bytes(facts, shape),
        sampling=device_sampling_bytes(facts, shape),
        copy=expert_copy_bytes(facts) + host_map_bytes(facts, is_copy=copies_host),
        runtime=runtime_bytes(shape),
        has_host_layers=n <= facts.n_layers,
        n_cpu_moe=n_cpu_moe or 0,
        is_exact=n_cpu_moe is not None or n_gpu_layers is not None,
    )
    kinds = kinds or range(len(budgets))
    dealt = (dealer.deal(budgets, counts) for counts in _splits(n, budgets, kinds))
    yield from (placement for placement in dealt if placement is not None)


def _splits(n: int, budgets: Sequence[int], kinds: Sequence[object]) -> Iterator[tuple[int, ...]]:
    """Yield distributions of `n` layers: to every choice of cards, the fewest cards first.

    They share the layers by their memory, two unlike ones in every possible way. With more than
    `_MANY` cards, only the smallest are left out.
    """
    cards = sorted(range(len(budgets)), key=lambda card: -budgets[card])
    few = sorted(cards[:_MANY])
    choices = [each for size in range(1, len(few) + 1) for each in combinations(few, size)]
    choices += [tuple(sorted(cards[:size])) for size in range(_MANY + 1, len(cards) + 1)]
    alike = {tuple((budgets[i], kinds[i]) for i in chosen): chosen for chosen in reversed(choices)}
    for chosen in (each for each in choices if each in alike.values()):
        are_unlike = len(chosen) == 2 and kinds[chosen[0]] != kinds[chosen[1]]
        for counts in _shares(n, [budgets[card] for card in chosen], in_all_ways=are_unlike):
            dealt = dict(zip(chosen, counts, strict=True))
            yield tuple(dealt.get(card, 0) for card in range(len(budgets)))


def _shares(n: int, budgets: Sequence[int], *, in_all_ways: bool) -> Iterator[tuple[int, ...]]:
    if in_all_ways:
        # The even ones first, which win where others are equally good.
        for first in sorted(range(1, n), key=lambda k: abs(k * sum(budgets) - n * budgets[0])):
            yield (first, n - first)
        return
    shares = [divmod(n * budget, max(1, sum(budgets))) for budget in budgets]
    counts = [whole for whole, _ in shares]
    by_rest = sorted(range(len(shares)), key=lambda card: -shares[card][1])
    for card in by_rest[: n - sum(counts)]:
        counts[card] += 1
    if all(counts):
        yield tuple(counts)


class _Dealer(msgspec.Struct, frozen=True, kw_only=True):
    """Fills the GPUs, for all distributions of the layers of one shape.

    Attributes:
        sampling: In addition to `compute`, of the GPU with the head.
        copy: For experts on the host: room for a tensor of them, and the way to it.
        has_host_layers: The copy is needed in any case.
        is_exact: No other experts may be there.
    """

    facts: ModelFacts
    caches: list[int]
    compute: int
    sampling: int
    copy: int
    runtime: int
    has_host_layers: bool
    n_cpu_moe: int
    is_exact: bool

    def deal(self, budgets: Sequence[int], counts: tuple[int, ...]) -> Placement | None:
        first = self.facts.n_layers + 1 - sum(counts)
        last_gpu = max(i for i, n in enumerate(counts) if n)
        memories: list[DeviceMemory] = []
        whole: list[int] = []
        parts: list[_Parts] = []
        for gpu, (count, budget) in enumerate(zip(counts, budgets, strict=True)):
            if not count:
                memories.append(DeviceMemory())
                continue
            layers = range(first, min(first + count, self.facts.n_layers))
            first += count
            filled = self._fill(layers, budget, has_head=gpu == last_gpu)
            if filled is None:
                return None
            memories.append(filled[0])
            whole += filled[1]
            parts += filled[2]
        return Placement(
            n_gpu_layers=sum(counts),
            layers_per_gpu=counts,
            host_experts=tuple(whole),
            host_parts=tuple(parts),
            gpus=tuple(memories),
        )

    def _fill(
        self, layers: range, budget: int, *, has_head: bool
    ) -> tuple[DeviceMemory, list[int], list[_Parts]] | None:
        """Add experts, the last layers first; also return `host_experts` and `host_parts`."""
        expert_bytes = self.facts.layer_expert_bytes
        memory = DeviceMemory(
            weights=sum(self.facts.layers[layer].dense_bytes for layer in layers)
            + (self.facts.output_bytes if has_head else 0),
            cache=sum(self.caches[layers.start : layers.stop]),
            compute=self.compute + (self.sampling if has_head else 0),
            runtime=self.runtime,
        )
        whole = [layer for layer in layers if layer < self.n_cpu_moe]
        free = [layer for layer in layers if layer >= self.n_cpu_moe]
        n_all = sum(expert_bytes[layer] for layer in free)
        if not whole and not self.has_host_layers and memory.total + n_all <= budget:
            return _add(memory, n_all, 0), [], []
        room = n_room = budget - memory.total - self.copy
        if room < 0:
            return None
        while free and expert_bytes[free[-1]] <= room:
            room -= expert_bytes[free.pop()]
        if free and self.is_exact:
            return None
        parts: list[_Parts] = []
        if free:
            n_parts = 0
            for n_bytes in self.facts.layers[free[-1]].expert_bytes:
                if n_bytes > room:
                    break
                room -= n_bytes
                n_parts += 1
            if n_parts:
                parts.append((free.pop(), EXPERT_PARTS[n_parts:]))
        return _add(memory, n_room - room, self.copy), whole + free, parts


def _add(memory: DeviceMemory, weights: int, compute: int) -> DeviceMemory:
    return msgspec.structs.replace(
        memory, weights=memory.weights + weights, compute=memory.compute + compute
    )
