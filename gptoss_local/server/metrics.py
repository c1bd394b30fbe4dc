"""Whether the server lives (`/health`), and what it has done (`/metrics`, for Prometheus).

Source: Prometheus' exposition formats, text version 0.0.4.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gptoss_local.chat import ChatEvent, Done
from gptoss_local.engine.client import EngineClient
from gptoss_local.engine.protocol import Stats
from gptoss_local.errors import EngineCrashedError
from gptoss_local.server.streaming import json_response

_STATS_TIMEOUT_S = 2.0
_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_ENGINE = {
    "n_running": ("gauge", "sequences_running", "Sequences that run now."),
    "n_waiting": ("gauge", "sequences_waiting", "Sequences that wait for a slot or for cells."),
    "n_cells": ("gauge", "cache_cells", "Tokens that the KV cache holds."),
    "n_cells_used": ("gauge", "cache_cells_used", "Cells of the KV cache in use."),
    "n_cells_cached": ("gauge", "cache_cells_kept", "Cells that hold prefixes for reuse."),
    "n_checkpoints": ("gauge", "checkpoints", "Sliding windows kept in host memory."),
    "checkpoint_bytes": ("gauge", "checkpoint_bytes", "Host memory of checkpoints."),
    "n_steps": ("counter", "steps_total", "Steps since the model was loaded."),
    "n_prefilled": ("counter", "prefilled_tokens_total", "Prompt tokens computed."),
    "n_prefetched": ("counter", "prefetched_tokens_total", "Tokens computed on suspicion."),
    "n_cached_tokens": ("counter", "reused_tokens_total", "Prompt tokens reused."),
    "n_evicted": ("counter", "evicted_tokens_total", "Tokens that fell out of the cache."),
    "n_drafted": ("counter", "drafted_tokens_total", "Tokens guessed ahead."),
    "n_accepted": ("counter", "accepted_tokens_total", "Guesses that were right."),
    "n_decoded": ("counter", "decoded_tokens_total", "Tokens generated."),
    "n_preempted": ("counter", "preempted_total", "Sequences that gave up their cells."),
}


def routes() -> list[Route]:
    return [
        Route("/health", health, methods=["GET"]),
        Route("/metrics", metrics, methods=["GET"]),
    ]


async def health(_request: Request) -> Response:
    return json_response({"status": "ok"})


async def metrics(request: Request) -> Response:
    manager = request.app.state.manager
    models = list(manager.loaded)
    stats = await asyncio.gather(*(_stats(model.engine) for model in models))
    names = (model.entry.name for model in models)
    text = manager.counters.render(dict(zip(names, stats, strict=True)))
    return Response(text, media_type=_CONTENT_TYPE)


async def _stats(engine: EngineClient) -> Stats | None:
    with suppress(EngineCrashedError, TimeoutError):  # the engine answers between two steps
        return await asyncio.wait_for(engine.stats(), _STATS_TIMEOUT_S)
    return None


class Counters:
    """Answers since the server's start. Thread: one event loop."""

    def __init__(self) -> None:
        self._ends: Counter[str] = Counter()
        self._tokens: Counter[str] = Counter()
        self._seconds: Counter[str] = Counter()
        self.n_active = 0

    def add(self, event: ChatEvent) -> None:
        """Count an answer that is over; other events do not matter."""
        if not isinstance(event, Done):
            return
        usage = event.usage
        self._ends[event.reason] += 1
        self._tokens["prompt"] += usage.n_prompt
        self._tokens["cached"] += usage.n_cached
        self._tokens["generated"] += usage.n_generated
        # Whole nanoseconds: sums of floats would drift over months.
        self._seconds["queue"] += usage.queue_ns
        self._seconds["prefill"] += usage.prefill_ns
        self._seconds["decode"] += usage.decode_ns

    def ended(self, why: str) -> None:
        """Count an answer that ended without Done: a class of error, or `left`."""
        self._ends[why] += 1

    def render(self, models: dict[str, Stats | None]) -> str:
        """All metrics; those of the engines of loaded models where they told their stats."""
        lines = [
            *_head("gauge", "gptoss_answers_active", "Answers under way, loading included."),
            f"gptoss_answers_active {self.n_active}",
            *_head("counter", "gptoss_answers_total", "Answers by how they ended."),
            *(f'gptoss_answers_total{{end="{end}"}} {n}' for end, n in sorted(self._ends.items())),
            *_head("counter", "gptoss_tokens_total", "Tokens of complete answers."),
            *(f'gptoss_tokens_total{{kind="{k}"}} {n}' for k, n in sorted(self._tokens.items())),
            *_head("counter", "gptoss_answer_seconds_total", "Time of complete answers by phase."),
            *(
                f'gptoss_answer_seconds_total{{phase="{phase}"}} {ns / 1e9:.6f}'
                for phase, ns in sorted(self._seconds.items())
            ),
            *_head("gauge", "gptoss_model_loaded", "1 for each model in memory."),
            *(f'gptoss_model_loaded{{model="{_escape(name)}"}} 1' for name in models),
            *_engines({_escape(name): stats for name, stats in models.items() if stats}),
        ]
        return "\n".join(lines) + "\n"


def _engines(models: dict[str, Stats]) -> Iterator[str]:
    if not models:
        return
    for field, (kind, name, text) in _ENGINE.items():
        yield from _head(kind, f"gptoss_engine_{name}", text)
        for model, stats in models.items():
            yield f'gptoss_engine_{name}{{model="{model}"}} {getattr(stats, field)}'


def _head(kind: str, name: str, text: str) -> Iterable[str]:
    return f"# HELP {name} {text}", f"# TYPE {name} {kind}"


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
