"""Traces by OpenTelemetry, if `OTEL_EXPORTER_OTLP_ENDPOINT` is set; no span has users' texts.

    POST /v1/responses              request   continues the client's trace (`traceparent`)
    ├── chat nano                   answer    one for each, between calls of tools
    │   ├── queue, prefill, decode            their times are those that the engine measured
    ├── upstream                              a request to an engine elsewhere
    └── execute_tool python         tool      a call that the server runs

Names of attributes: OpenTelemetry's semantic conventions for HTTP and for generative AI.
"""

import asyncio
import logging
import re
import threading
import time
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gptoss_local import __version__
from gptoss_local.base.events import ToolCall
from gptoss_local.runner.counters import AnswerRecord
from gptoss_local.runner.upstream.connection import UpstreamCall, UpstreamFault, following
from gptoss_local.server.dialects.registry import DIALECTS
from gptoss_local.talk.loop import following_calls
from gptoss_local.talk.tools import ToolResult

_log = logging.getLogger("gptoss")

_CLOSE_S = 2.0  # for the last spans, if the collector is slow
_UNTRACED = re.compile(r"/|/health|/metrics|/web/.*")  # asked for all the time, and no work

_request: ContextVar[Span | None] = ContextVar("request", default=None)
"""The span of the request that this task, or the task that started it, works for."""


class _TraceRequests:
    def __init__(self, app: ASGIApp, tracing: "Tracing") -> None:
        self._app = app
        self._tracing = tracing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or _UNTRACED.fullmatch(scope["path"]):
            await self._app(scope, receive, send)
            return
        method, path, headers = scope["method"], scope["path"], Headers(scope=scope)
        span = self._tracing.begin_request(method, headers)
        status = 500  # of exceptions: no answer passes here then

        async def answering(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, answering)
        finally:
            dialect = next(d.name for d in DIALECTS if d.is_spoken(scope["path"], headers))
            span.set_attributes(
                {
                    "http.request.method": method,
                    "http.response.status_code": status,
                    "http.response.header.request-id": [scope["state"]["request_id"]],
                    "url.path": path,
                    "url.scheme": scope["scheme"],
                    "gptoss.dialect": dialect,
                }
            )
            if route := scope.get("route"):
                span.update_name(f"{method} {route.path}")
                span.set_attribute("http.route", route.path)
            if status >= 500:
                _fail(span, str(status))
            span.end()


class Tracing:
    """Makes spans, and hands them to the exporter, which sends them from a thread of its own."""

    def __init__(self) -> None:
        ours = Resource.create({"service.name": "gptoss", "service.version": __version__})
        resource = ours.merge(OTELResourceDetector().detect())  # the environment's names win
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("gptoss", __version__)
        self._propagator = TraceContextTextMapPropagator()

    @property
    def middleware(self) -> Middleware:
        return Middleware(_TraceRequests, tracing=self)

    def begin_request(self, method: str, headers: Mapping[str, str]) -> Span:
        """Begin the span of this task's request, in the client's trace if the headers name it."""
        parent = self._propagator.extract(headers, Context())
        span = self._tracer.start_span(method, parent, SpanKind.SERVER)
        _request.set(span)
        following.set(partial(self._follow, span))
        following_calls.set(partial(self._follow_call, span))
        return span

    def add_answer(self, record: AnswerRecord) -> None:
        """Add the spans of a finished answer to its request; the last measured phase ends now."""
        if (parent := _request.get()) is None:
            return
        usage = record.usage
        if parent.is_recording():  # a saved chat's has ended long before its answer
            parent.set_attribute("gen_ai.request.model", record.model)
        attributes: dict[str, Any] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "gptoss",
            "gen_ai.request.model": record.model,
            "gen_ai.response.finish_reasons": [record.end],
        }
        if not record.is_error:
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
            _fail(answer, record.end)
        answer.end(record.ended_ns)

    async def _follow_call(
        self, request: Span, call: ToolCall, running: Coroutine[Any, Any, ToolResult]
    ) -> ToolResult:
        attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": call.name}
        if call.id:
            attributes["gen_ai.tool.call.id"] = call.id
        span = self._begin(request, f"execute_tool {call.name}", time.time_ns(), attributes)
        error = "cancelled"
        try:
            result = await running
            error = "tool_error" if result.is_error else ""
            return result
        except Exception as raised:
            error = type(raised).__name__
            raise
        finally:
            if error:
                _fail(span, error)
            span.end()

    @contextmanager
    def _follow(self, request: Span, call: UpstreamCall) -> Iterator[None]:
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
            _fail(span, type(error).__name__)
            raise
        finally:
            if call.status:
                span.set_attribute("http.response.status_code", call.status)
            if call.n_cached is not None:
                span.set_attribute("gen_ai.usage.cache_read.input_tokens", call.n_cached)
            span.set_attribute("gen_ai.usage.output_tokens", call.n_generated)
            span.end()

    async def close(self) -> None:
        closing = threading.Thread(target=self._provider.shutdown, daemon=True)
        closing.start()
        await asyncio.to_thread(closing.join, _CLOSE_S)
        if closing.is_alive():
            _log.warning("the last spans could not be sent in %.0f s", _CLOSE_S)

    def _begin(
        self,
        parent: Span,
        name: str,
        begun_ns: int,
        attributes: Mapping[str, Any],
        kind: SpanKind = SpanKind.INTERNAL,
    ) -> Span:
        context = set_span_in_context(parent, Context())
        return self._tracer.start_span(
            name, context, kind, attributes=attributes, start_time=begun_ns
        )


def _fail(span: Span, error: str) -> None:
    span.set_attribute("error.type", error)
    span.set_status(StatusCode.ERROR)
