"""Write metrics as Prometheus reads them."""

from collections.abc import Iterable, Iterator, Mapping

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4 as MEDIA_TYPE
from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gptoss_local.engine.protocol import Stats
from gptoss_local.runner.counters import Counters
from gptoss_local.server.histograms import Histograms
from gptoss_local.server.limits import KeyUse

__all__ = ["MEDIA_TYPE", "render"]

_GAUGES = {
    "n_running": ("sequences_running", "Sequences that run now."),
    "n_waiting": ("sequences_waiting", "Sequences that wait for a slot or for cells."),
    "n_cells": ("cache_cells", "Tokens that the KV cache holds."),
    "n_cells_used": ("cache_cells_used", "Cells of the KV cache in use."),
    "n_cells_cached": ("cache_cells_kept", "Cells that hold prefixes for reuse."),
    "n_checkpoints": ("checkpoints", "Sliding windows kept in host memory."),
    "checkpoint_bytes": ("checkpoint_bytes", "Host memory of checkpoints."),
}
_COUNTERS = {
    "n_steps": ("steps", "Steps since the model was loaded."),
    "n_prefilled": ("prefilled_tokens", "Prompt tokens computed."),
    "n_prefetched": ("prefetched_tokens", "Prompt tokens computed before they were asked for."),
    "n_cached_tokens": ("reused_tokens", "Prompt tokens reused."),
    "n_evicted": ("evicted_tokens", "Tokens that fell out of the cache."),
    "n_drafted": ("drafted_tokens", "Tokens guessed ahead."),
    "n_accepted": ("accepted_tokens", "Guesses that were right."),
    "n_decoded": ("decoded_tokens", "Tokens generated."),
    "n_checks": ("checks", "Known computations that were repeated."),
    "n_preempted": ("preempted", "Sequences that gave up their cells."),
}


def render(
    counters: Counters,
    models: Mapping[str, Stats | None],
    histograms: Histograms,
    keys: Mapping[str, KeyUse],
    joules: Mapping[tuple[str, str], float],
) -> bytes:
    families = _Families(counters, models, keys, joules)
    return generate_latest(families) + generate_latest(histograms.registry)


class _Families(Collector):
    def __init__(
        self,
        counters: Counters,
        models: Mapping[str, Stats | None],
        keys: Mapping[str, KeyUse],
        joules: Mapping[tuple[str, str], float],
    ) -> None:
        self._counters = counters
        self._models = models
        self._keys = keys
        self._joules = joules

    def collect(self) -> Iterator[Metric]:
        return (family for family in self._families() if family.samples)

    def _families(self) -> Iterator[Metric]:
        done = self._counters
        yield _gauge(
            "answers_active", "Answers under way, loading included.", [((), done.n_active)]
        )
        ends = (((end,), n) for end, n in done.ends.items())
        yield _counter("answers", "Answers by how they ended.", ends, "end")
        tokens = (((kind,), n) for kind, n in done.tokens.items())
        yield _counter("tokens", "Tokens of complete answers.", tokens, "kind")
        seconds = (((phase,), ns / 1e9) for phase, ns in done.nanoseconds.items())
        yield _counter("answer_seconds", "Time of complete answers by phase.", seconds, "phase")
        what = "Engine processes that failed."
        yield _counter("engine_crashes", what, done.crashes.items(), "model", "error")
        use = self._keys.items()
        asked = (((key, end), n) for key, each in use for end, n in each.requests.items())
        yield _counter("key_requests", "Requests for answers by API key.", asked, "key", "outcome")
        spent = (((key, kind), n) for key, each in use for kind, n in each.tokens.items())
        yield _counter("key_tokens", "Tokens charged to an API key.", spent, "key", "kind")
        what = "Energy of answers; several at once share it equally."
        yield _counter("answer_joules", what, self._joules.items(), "model", "device")
        loaded = (((name,), 1) for name in self._models)
        yield _gauge("model_loaded", "1 for each model in memory.", loaded, "model")
        for make, table in ((_gauge, _GAUGES), (_counter, _COUNTERS)):
            for field, (name, what) in table.items():
                models = self._models.items()
                values = [((model,), getattr(stats, field)) for model, stats in models if stats]
                yield make(f"engine_{name}", what, values, "model")


_Values = Iterable[tuple[tuple[str, ...], float]]


def _gauge(name: str, what: str, values: _Values, *labels: str) -> Metric:
    return _filled(GaugeMetricFamily(f"gptoss_{name}", what, labels=labels), values)


def _counter(name: str, what: str, values: _Values, *labels: str) -> Metric:
    return _filled(CounterMetricFamily(f"gptoss_{name}", what, labels=labels), values)


def _filled(family: GaugeMetricFamily | CounterMetricFamily, values: _Values) -> Metric:
    for labels, value in sorted(values):
        family.add_metric(labels, value)
    return family
