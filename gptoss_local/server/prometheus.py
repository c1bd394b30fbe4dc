"""Metrics in Prometheus's types; imported on first use, as the library takes 60 ms."""

from collections.abc import Iterable, Mapping

from prometheus_client import (
    CONTENT_TYPE_PLAIN_0_0_4,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)

from gptoss_local.engine.protocol import Stats
from gptoss_local.runner.counters import AnswerRecord, Counters
from gptoss_local.server.keys import KeyUse

_SECONDS = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0),
)
_TOKEN_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.06, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5)
_TOKENS = (0.0, *(float(4**n) for n in range(2, 9)), 131_072.0)
_HISTOGRAMS = {
    "time_to_first_token_seconds": (
        "Time until the first piece of an answer was there, loading included.",
        _SECONDS,
    ),
    "time_per_output_token_seconds": (
        "Time of a token after the first one, the mean of an answer.",
        _TOKEN_SECONDS,
    ),
    "queue_seconds": ("Time that answers waited for a slot or for cells.", _SECONDS),
    "prompt_tokens": ("Tokens of prompts.", _TOKENS),
    "cached_tokens": ("Tokens of prompts that were not computed again.", _TOKENS),
    "generated_tokens": ("Tokens of answers.", _TOKENS),
}
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

_Values = Iterable[tuple[tuple[str, ...], float]]


class Metrics:
    """The metrics of one server, in its event loop."""

    media_type = CONTENT_TYPE_PLAIN_0_0_4

    def __init__(self, counters: Counters) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a gauge for each, of a time that no one asks for
        self._counters = counters
        self._registry = registry = CollectorRegistry()
        what = "Answers by how they ended."
        self._answers = Counter("gptoss_answers", what, ("end",), registry=registry)
        what = "Tokens of complete answers."
        self._tokens = Counter("gptoss_tokens", what, ("kind",), registry=registry)
        what = "Time of complete answers by phase."
        self._seconds = Counter("gptoss_answer_seconds", what, ("phase",), registry=registry)
        self._histograms = {
            name: Histogram(f"gptoss_{name}", what, ("model",), registry=registry, buckets=bounds)
            for name, (what, bounds) in _HISTOGRAMS.items()
        }

    def add(self, record: AnswerRecord) -> None:
        self._answers.labels(record.end).inc()
        if (usage := record.usage) is None:
            return

        def observe(name: str, value: float) -> None:
            self._histograms[name].labels(record.model).observe(value)

        tokens = {
            "prompt": usage.n_prompt,
            "cached": usage.n_cached,
            "generated": usage.n_generated,
        }
        for kind, n in tokens.items():
            self._tokens.labels(kind).inc(n)
            observe(f"{kind}_tokens", n)
        phases = {"queue": usage.queue_ns, "prefill": usage.prefill_ns, "decode": usage.decode_ns}
        for phase, ns in phases.items():
            self._seconds.labels(phase).inc(ns / 1e9)
        observe("queue_seconds", usage.queue_ns / 1e9)
        first_ns = record.first_ns or record.ended_ns
        waited_s = max(0, first_ns - record.begun_ns) / 1e9  # the clock may be set
        observe("time_to_first_token_seconds", waited_s)
        if usage.n_generated > 1:
            mean_s = usage.decode_ns / 1e9 / (usage.n_generated - 1)
            observe("time_per_output_token_seconds", mean_s)

    def render(
        self,
        models: Mapping[str, Stats | None],
        use: Mapping[str, KeyUse],
        joules: Mapping[tuple[str, str], float],
    ) -> bytes:
        now = CollectorRegistry()

        def put(
            kind: type[Gauge | Counter], name: str, what: str, values: _Values, *labels: str
        ) -> None:
            if found := sorted(values):
                metric = kind(f"gptoss_{name}", what, labels, registry=now)
                for of, value in found:
                    metric.labels(*of).inc(value)

        what = "Answers under way, loading included."
        Gauge("gptoss_answers_active", what, registry=now).set(self._counters.n_active)
        what = "Engine processes that failed."
        put(Counter, "engine_crashes", what, self._counters.crashes.items(), "model", "error")
        asked = (((key, end), n) for key, each in use.items() for end, n in each.requests.items())
        put(Counter, "key_requests", "Requests for answers by API key.", asked, "key", "outcome")
        spent = (((key, kind), n) for key, each in use.items() for kind, n in each.tokens.items())
        put(Counter, "key_tokens", "Tokens charged to an API key.", spent, "key", "kind")
        what = "Energy of answers; several at once share it equally."
        put(Counter, "answer_joules", what, joules.items(), "model", "device")
        loaded = (((name,), 1) for name in models)
        put(Gauge, "model_loaded", "1 for each model in memory.", loaded, "model")
        for kind, table in ((Gauge, _GAUGES), (Counter, _COUNTERS)):
            for field, (name, what) in table.items():
                stats = models.items()
                values = (((model,), getattr(each, field)) for model, each in stats if each)
                put(kind, f"engine_{name}", what, values, "model")
        return generate_latest(self._registry) + generate_latest(now)
