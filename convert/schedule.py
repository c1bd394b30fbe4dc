"""Orders tensors by the sources they need, and estimates the disk space that takes."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence

from convert.journal import Shard
from convert.tensor_map import PlannedTensor, source_names


class Schedule:
    """Hands out tensors as their sources arrive, all tensors of one source together."""

    def __init__(self, tensors: Iterable[PlannedTensor]) -> None:
        self._groups: defaultdict[tuple[str, ...], list[PlannedTensor]] = defaultdict(list)
        for tensor in tensors:
            self._groups[tuple(source_names(tensor))].append(tensor)
        self._missing = {sources: set(sources) for sources in self._groups}
        self._waiting_for: defaultdict[str, list[tuple[str, ...]]] = defaultdict(list)
        for sources in self._groups:
            for name in sources:
                self._waiting_for[name].append(sources)

    def made_from(self, names: Iterable[str]) -> list[str]:
        groups = {sources for name in names for sources in self._waiting_for[name]}
        return [tensor.name for sources in groups for tensor in self._groups[sources]]

    def arrive(self, names: Iterable[str]) -> list[list[PlannedTensor]]:
        """Return, by source, the tensors that miss nothing now that `names` are there."""
        ready = []
        for name in names:
            for sources in self._waiting_for[name]:
                if name in self._missing[sources]:
                    self._missing[sources].remove(name)
                    if not self._missing[sources]:
                        ready.append(self._groups[sources])
        return ready

    def missing(self, done: Collection[str]) -> set[str]:
        return {
            name
            for sources, names in self._missing.items()
            for name in names
            if any(tensor.name not in done for tensor in self._groups[sources])
        }


def n_peak_bytes(
    tensors: Sequence[PlannedTensor], done: Collection[str], shards: Iterable[Shard]
) -> int:
    """Return how much more disk is taken, at most, while used shards are deleted in order."""
    schedule = Schedule(tensors)
    n_bytes = {t.name: 0 if t.name in done else t.n_bytes for t in tensors}
    n_taken = n_peak = 0
    in_use: list[tuple[Shard, set[str]]] = []
    for shard in shards:
        in_use.append((shard, set(schedule.made_from(shard.tensors))))
        for group in schedule.arrive(shard.tensors):
            n_taken += sum(n_bytes.pop(tensor.name) for tensor in group)
        n_peak = max(n_peak, n_taken)
        n_taken -= sum(s.n_bytes for s, made in in_use if not made & n_bytes.keys())
        in_use = [(s, made) for s, made in in_use if made & n_bytes.keys()]
    return max(n_peak, n_taken + sum(n_bytes.values()))
