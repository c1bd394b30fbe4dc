"""Compares a GGUF with a checkpoint, shard by shard."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path

from convert.adapter import Adapter
from convert.config import ModelConfig, read_config
from convert.header import SourceTensor
from convert.io_errors import reading
from convert.journal import JournalState, Shard
from convert.schedule import Schedule
from convert.shards import arriving_shards, local_shards
from convert.tensor_map import PlannedTensor, check_sources, plan_names
from convert.verify.keys import compare_keys, fused_name
from convert.verify.report import Report
from convert.verify.scan import Scan, TensorPlace, as_made
from convert.verify.structure import FileTensor, ModelFile
from gptoss_local.errors import ConvertError


class Comparison:
    def __init__(
        self,
        part: ModelFile,
        config: ModelConfig,
        tensors: Mapping[str, FileTensor],
        scan: Scan,
        report: Report,
    ) -> None:
        self._part, self._config, self._tensors = part, config, tensors
        self._scan, self._report = scan, report
        self._made: dict[str, PlannedTensor] = {}
        self._targets: dict[str, TensorPlace] = {}

    def run(
        self,
        source: Path,
        arrivals: Iterable[Path] | None,
        on_used: Callable[[Path], None] | None,
        adapter: Path | None,
    ) -> None:
        """Compare all tensors that the file has; `on_used` gets each shard that is done."""
        with reading(source):
            config = read_config(source)
            compare_keys(self._part, self._config, config, self._report)
            names, incoming = _open_source(source, arrivals)
            plan = plan_names(config, names, "bf16")
        if adapter is not None:
            merged = Adapter(adapter)
            plan, incoming = merged.match(plan), map(merged.apply, incoming)
        for tensor in plan:
            self._match(tensor)
        schedule = Schedule(plan)
        sources: dict[str, SourceTensor] = {}
        done: set[str] = set()
        held: dict[Path, set[str]] = {}
        for shard in incoming:
            check_sources(plan, shard.tensors)
            sources |= shard.tensors
            groups = schedule.arrive(shard.tensors)
            self._compare(groups, sources)
            done.update(tensor.name for group in groups for tensor in group)
            held[source / shard.name] = set(schedule.made_from(shard.tensors))
            for path in [path for path, made in held.items() if made <= done]:
                del held[path]
                if on_used is not None:
                    on_used(path)
        if missing := schedule.missing(()):
            raise ConvertError(
                f"The shard with {min(missing)} never arrived.",
                hint="Finish the download, then verify again.",
            )

    def _match(self, planned: PlannedTensor) -> None:
        if (target := self._find(planned)) is not None:
            self._made[planned.name] = as_made(planned, target.tensor)
            self._targets[planned.name] = target

    def _find(self, planned: PlannedTensor) -> TensorPlace | None:
        tensor = self._tensors.get(planned.name)
        if tensor is not None:
            return TensorPlace(tensor) if tensor.shape == planned.shape else None
        fused = self._tensors.get(fused_name(planned.name))
        n_q, n_kv = self._config.n_q, self._config.n_kv
        if fused is None or fused.shape != (n_q + 2 * n_kv, *planned.shape[1:]):
            return None
        first_row, n_rows = {"q": (0, n_q), "k": (n_q, n_kv), "v": (n_q + n_kv, n_kv)}[
            planned.name.split(".attn_")[1][0]
        ]
        if planned.shape[0] != n_rows:
            return None
        share = Fraction(n_rows, fused.shape[0])
        return TensorPlace(fused, fused.n_bytes // fused.shape[0] * first_row, share)

    def _compare(
        self, groups: Iterable[Sequence[PlannedTensor]], sources: Mapping[str, SourceTensor]
    ) -> None:
        named = ([self._made[t.name] for t in group if t.name in self._made] for group in groups)
        self._scan.compare([group for group in named if group], self._targets, sources)


def _open_source(
    source: Path, arrivals: Iterable[Path] | None
) -> tuple[Collection[str], Iterator[Shard]]:
    if arrivals is not None:
        return arriving_shards(source, arrivals, JournalState())
    shards = local_shards(source, JournalState())
    return {name for shard in shards for name in shard.tensors}, iter(shards)
