"""Traces by OpenTelemetry, if `OTEL_EXPORTER_OTLP_ENDPOINT` is set; no span has users' texts.

    POST /v1/responses              request   continues the client's trace (`traceparent`)
    ├── chat nano                   answer    one for each, between calls of tools
    │   ├── queue, prefill, decode            their times are those that the engine measured
    ├── upstream                              a request to an engine elsewhere
    └── execute_tool python         tool      a call that the server runs

Names of attributes: OpenTelemetry's semantic conventions for HTTP and for generative AI.
"""

import asyncio
import functools
import logging
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from gptoss_local import __version__
from gptoss_local.base.events import ToolCall
from gptoss_local.runner.counters import AnswerRecord
from gptoss_local.runner.upstream.calls import UpstreamCall, UpstreamFault, following
from gptoss_local.talk.loop import Loop
from gptoss_local.talk.tools import Call, ToolResult

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span, SpanKind

_log = logging.getLogger("gptoss")

_ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
_CLOSE_S = 2.0  # for the last spans, if the collector is slow


class Tracing:
    """Makes spans, and hands them to the exporter, which sends them from a thread of its own."""

    def __init__(self, provider: "TracerProvider") -> None:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._provider = provider
        self._tracer = provider.get_tracer("gptoss", __version__)
        self._propagator = TraceContextTextMapPropagator()

    def begin_request(self, method: str, headers: Mapping[str, str]) -> "Span":
        """Begin the span of this task's request, in the client's trace if the headers name it."""
        from opentelemetry.context import Context
        from opentelemetry.trace import SpanKind

        parent = self._propagator.extract(headers, Context())
        span = self._tracer.start_span(method, parent, SpanKind.SERVER)
        _request.set(_Request(self, span))
        following.set(functools.partial(self._follow, span))
        return span

    def add_answer(self, record: AnswerRecord) -> None:
        """Add the spans of a finished answer to its request; the last measured phase ends now."""
        if (request := _request.get()) is None:
            return
        parent, usage = request.span, record.usage
        if parent.is_recording():  # a saved chat's has ended long before its answer
            parent.set_attribute("gen_ai.request.model", record.model)
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "gptoss",
            "gen_ai.request.model": record.model,
            "gen_ai.response.finish_reasons": [record.end],
        }
        if record.is_error:
            attributes["error.type"] = record.end
        else:
            attributes["gen_ai.usage.input_tokens"] = record.n_prompt
            attributes["gen_ai.usage.output_tokens"] = record.n_generated
        if usage:
            attributes["gen_ai.usage.cache_read.input_tokens"] = usage.n_cached
        answer = self._begin(parent, f"chat {record.model}", record.begun_ns, attributes)
        if usage:
            decode_ns = max(record.ended_ns - usage.decode_ns, record.begun_ns)
            prefill_ns = max(decode_ns - usage.prefill_ns, record.begun_ns)
            queue_ns = max(prefill_ns - usage.queue_ns, record.begun_ns)
            n_read = usage.n_prompt - usage.n_cached
            read = {
                "gen_ai.usage.input_tokens": usage.n_prompt,
                "gen_ai.usage.cache_read.input_tokens": usage.n_cached,
                "gptoss.prefilled_tokens": n_read,
            }
            written = {
                "gen_ai.usage.output_tokens": usage.n_generated,
                "gptoss.drafted_tokens": usage.n_drafted,
                "gptoss.accepted_tokens": usage.n_accepted,
            }
            self._begin(answer, "queue", queue_ns, {}).end(prefill_ns)
            self._begin(answer, "prefill", prefill_ns, read).end(decode_ns)
            self._begin(answer, "decode", decode_ns, written).end(record.ended_ns)
        if record.is_error:
            fail(answer)
        answer.end(record.ended_ns)

    def add_call(self, request: "Span", call: ToolCall, begun_ns: int, error: str) -> None:
        """Add the span of a call that has ended now; `error` is its kind, if there was one."""
        attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": call.name}
        if call.id:
            attributes["gen_ai.tool.call.id"] = call.id
        if error:
            attributes["error.type"] = error
        span = self._begin(request, f"execute_tool {call.name}", begun_ns, attributes)
        if error:
            fail(span)
        span.end()

    @contextmanager
    def _follow(self, request: "Span", call: UpstreamCall) -> Iterator[None]:
        from opentelemetry.context import Context
        from opentelemetry.trace import SpanKind, set_span_in_context

        url = urlsplit(call.url)
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "text_completion",
            "gen_ai.request.model": call.model,
            "gen_ai.usage.input_tokens": call.n_prompt,
            "gptoss.upstream.kind": call.kind,
            "server.address": url.hostname or "",
        }
        if url.port:
            attributes["server.port"] = url.port
        if call.n_resent:
            attributes["http.request.resend_count"] = call.n_resent
        span = self._begin(request, "upstream", time.time_ns(), attributes, SpanKind.CLIENT)
        self._propagator.inject(call.headers, set_span_in_context(span, Context()))
        try:
            yield
        except Exception as raised:
            error = raised.error if isinstance(raised, UpstreamFault) else raised
            span.set_attribute("error.type", type(error).__name__)
            fail(span)
            raise
        finally:
            if call.status:
                span.set_attribute("http.response.status_code", call.status)
            if call.n_cached is not None:
                span.set_attribute("gen_ai.usage.cache_read.input_tokens", call.n_cached)
            span.set_attribute("gen_ai.usage.output_tokens", call.n_generated)
            span.end()

    async def close(self) -> None:
        """Send the last spans; those that take too long are dropped."""
        closing = threading.Thread(target=self._provider.shutdown, daemon=True)
        closing.start()
        await asyncio.to_thread(closing.join, _CLOSE_S)
        if closing.is_alive():
            _log.warning("the last spans could not be sent in %.0f s", _CLOSE_S)

    def _begin(
        self,
        parent: "Span",
        name: str,
        begun_ns: int,
        attributes: Mapping[str, Any],
        kind: "SpanKind | None" = None,
    ) -> "Span":
        from opentelemetry.context import Context
        from opentelemetry.trace import SpanKind, set_span_in_context

        return self._tracer.start_span(
            name,
            set_span_in_context(parent, Context()),
            kind or SpanKind.INTERNAL,
            attributes=attributes,
            start_time=begun_ns,
        )


class _Request(NamedTuple):
    tracing: Tracing
    span: "Span"


_request: ContextVar[_Request | None] = ContextVar("request", default=None)
"""The request that this task, or the task that started it, works for."""


def start_tracing() -> Tracing | None:
    """Return None unless the environment says where spans go and the SDK is installed."""
    if not (endpoint := os.environ.get(_ENDPOINT, "").strip()):
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        _log.warning(
            "%s is set, but there are no traces: %s. pip install 'gptoss-local[otel]' adds them.",
            _ENDPOINT,
            error,
        )
        return None
    # The environment's name of the service wins; the SDK would let ours win.
    ours = {"service.name": "gptoss", "service.version": __version__}
    given = Resource.create().attributes
    resource = Resource.create({**ours, **_named(given)})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    _log.info("traces go to %s", endpoint)
    return Tracing(provider)


class TracedLoop(Loop):
    """The loop of answers and calls, with a span of each call if there are traces."""

    async def _run_call(self, call: ToolCall, made: Call) -> ToolResult:
        if (request := _request.get()) is None:
            return await super()._run_call(call, made)
        begun_ns, error = time.time_ns(), "cancelled"
        try:
            result = await super()._run_call(call, made)
            error = "tool_error" if result.is_error else ""
            return result
        except Exception as raised:
            error = type(raised).__name__
            raise
        finally:
            request.tracing.add_call(request.span, call, begun_ns, error)


def _named(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the environment's names of the service, without the SDK's stopgaps."""
    found = {name: given.get(name, "") for name in ("service.name", "service.version")}
    return {n: v for n, v in found.items() if v and not str(v).startswith("unknown_service")}


def fail(span: "Span") -> None:
    from opentelemetry.trace import StatusCode

    span.set_status(StatusCode.ERROR)
