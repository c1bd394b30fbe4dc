"""Distributions of answers: times and tokens by model, in buckets that Prometheus adds up."""

from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from gptoss_local.runner.counters import AnswerRecord

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Histogram

_SECONDS = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0),
)
_TOKEN_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.06, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5)
_TOKENS = (0.0, *(float(4**n) for n in range(2, 9)), 131_072.0)


class _Kind(NamedTuple):
    what: str
    bounds: tuple[float, ...]


_KINDS = {
    "time_to_first_token_seconds": _Kind(
        "Time until the first piece of an answer was there, loading included.", _SECONDS
    ),
    "time_per_output_token_seconds": _Kind(
        "Time of a token after the first one, the mean of an answer.", _TOKEN_SECONDS
    ),
    "queue_seconds": _Kind("Time that answers waited for a slot or for cells.", _SECONDS),
    "prompt_tokens": _Kind("Tokens of prompts.", _TOKENS),
    "cached_tokens": _Kind("Tokens of prompts that were not computed again.", _TOKENS),
    "generated_tokens": _Kind("Tokens of answers.", _TOKENS),
}


class Histograms:
    """Distributions of complete answers, in one event loop."""

    @cached_property
    def registry(self) -> "CollectorRegistry":
        from prometheus_client import CollectorRegistry, disable_created_metrics

        disable_created_metrics()  # type: ignore[no-untyped-call]  # a gauge for each, of a time that no one asks for
        return CollectorRegistry()

    @cached_property
    def _by_name(self) -> "dict[str, Histogram]":
        """PERF: the library takes 60 ms, which the server's start would otherwise pay."""
        from prometheus_client import Histogram

        return {
            name: Histogram(
                f"gptoss_{name}", kind.what, ("model",), registry=self.registry, buckets=kind.bounds
            )
            for name, kind in _KINDS.items()
        }

    def add(self, record: AnswerRecord) -> None:
        if (usage := record.usage) is None:
            return
        first_ns = record.first_ns or record.ended_ns
        waited_s = max(0, first_ns - record.begun_ns) / 1e9  # the clock may be set
        self._observe("time_to_first_token_seconds", record, waited_s)
        if usage.n_generated > 1:
            mean_s = usage.decode_ns / 1e9 / (usage.n_generated - 1)
            self._observe("time_per_output_token_seconds", record, mean_s)
        self._observe("queue_seconds", record, usage.queue_ns / 1e9)
        self._observe("prompt_tokens", record, usage.n_prompt)
        self._observe("cached_tokens", record, usage.n_cached)
        self._observe("generated_tokens", record, usage.n_generated)

    def _observe(self, name: str, record: AnswerRecord, value: float) -> None:
        self._by_name[name].labels(record.model).observe(value)
