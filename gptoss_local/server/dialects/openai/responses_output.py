"""Output items of `/v1/responses`, as they are written. Source: OpenAI's API reference."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from gptoss_local.harmony import ContentDelta, ReasoningDelta, ToolCall
from gptoss_local.server.dialects.history import SEAL
from gptoss_local.server.dialects.openai.parts import OpenAILogprob, new_id, openai_logprobs
from gptoss_local.server.dialects.openai.responses_tools import (
    SEARCH,
    HostedTools,
    Origin,
    ToolListing,
)
from gptoss_local.server.dialects.sent_tools import CODE_INTERPRETER, MCP, WEB_SEARCH
from gptoss_local.talk.citations import find_citations
from gptoss_local.talk.tools import Page, ToolResult

Fields = dict[str, Any]
TextDelta = ReasoningDelta | ContentDelta


class CallItem:
    """A call while it is written; `place` and `text_done` are fields of the events about it."""

    def __init__(self, output_index: int, call_id: str, origin: Origin) -> None:
        self.call_id = call_id
        is_custom = origin.kind == "custom"
        self._field = "input" if is_custom else "arguments"
        kind = "custom_tool_call" if is_custom else "function_call"
        self.event = f"response.{kind}_{self._field}"
        item_id = new_id("ctc_" if is_custom else "fc_")
        self._head = {"id": item_id, "type": kind, "call_id": call_id, "name": origin.name}
        if origin.namespace:
            self._head["namespace"] = origin.namespace
        self.place: Fields = {"item_id": item_id, "output_index": output_index}
        self.text = ""

    def item(self, status: str) -> Fields:
        return self._head | {"status": status, self._field: self.text}

    def text_done(self) -> Fields:
        return self.place | {"name": self._head["name"], self._field: self.text}


class TextItem:
    """Reasoning or a message while it is written, and the fields of the events about it."""

    def __init__(self, output_index: int, first: TextDelta) -> None:
        self.is_reasoning = isinstance(first, ReasoningDelta)
        if isinstance(first, ReasoningDelta):
            self.part_event, self.text_event = "reasoning_summary_part", "reasoning_summary_text"
            part_index = "summary_index"
            self._head: Fields = {"id": new_id("rs_"), "type": "reasoning"}
        else:
            self.part_event, self.text_event = "content_part", "output_text"
            part_index = "content_index"
            self._phase = "commentary" if first.is_preamble else "final_answer"
            self._head = {"id": new_id("msg_"), "type": "message"}
        item_id = self._head["id"]
        self.place = {"item_id": item_id, "output_index": output_index, part_index: 0}
        self._texts: list[str] = []
        self._logprobs: list[OpenAILogprob] = []
        self._annotations: list[Fields] = []

    def delta(self, delta: TextDelta) -> Fields:
        self._texts.append(delta.own_text)
        if isinstance(delta, ReasoningDelta):
            return self.place | {"delta": delta.own_text}
        logprobs = openai_logprobs(delta.logprobs)
        self._logprobs += logprobs
        return self.place | {"delta": delta.own_text, "logprobs": logprobs}

    def annotate(self, pages: Mapping[int, Page]) -> Iterator[Fields]:
        """Note the pages that the whole text cites, and return the fields of the events."""
        # The marks stay in the text, as the model wrote it.
        for mark in find_citations("".join(self._texts)):
            if (page := pages.get(mark.cursor)) and page.url:
                cited = {"url": page.url, "title": page.title or page.url}
                place = {"start_index": mark.start, "end_index": mark.end}
                self._annotations.append({"type": "url_citation", **place, **cited})
        for index, annotation in enumerate(self._annotations):
            yield self.place | {"annotation_index": index, "annotation": annotation}

    def text_done(self) -> Fields:
        extra = {} if self.is_reasoning else {"logprobs": self._logprobs}
        return self.place | {"text": "".join(self._texts)} | extra

    def part(self) -> Fields:
        text = "".join(self._texts)
        if self.is_reasoning:
            return {"type": "summary_text", "text": text}
        extra = {"annotations": [*self._annotations], "logprobs": [*self._logprobs]}
        return {"type": "output_text", "text": text} | extra

    def item(self, status: str) -> Fields:
        parts = [self.part()] if self._texts else []
        if not self.is_reasoning:
            said = {"role": "assistant", "phase": self._phase, "content": parts}
            return self._head | {"status": status} | said
        text = "".join(self._texts)
        content = [{"type": "reasoning_text", "text": text}] if text else []
        sealed = {"encrypted_content": SEAL + text} if text else {}  # Open Responses: never null
        return self._head | {"summary": parts, "content": content} | sealed


def own_item(kind: str, call: ToolCall) -> Fields:
    given = call.arguments
    match kind:
        case "tool_search":
            given = {"arguments": given}
        case "local_shell":
            given = {"action": {"type": "exec", "env": {}} | given}
        case "shell":
            given = {"action": {"timeout_ms": None, "max_output_length": None} | given}
    item_id = new_id("tsc_" if kind == SEARCH else "item_")
    head = {"id": item_id, "type": f"{kind}_call", "status": "completed"}
    where = {"execution": "client"} if kind == SEARCH else {}
    return head | where | {"call_id": call.id} | given


_TYPES = {
    WEB_SEARCH: ("web_search_call", "ws_"),
    CODE_INTERPRETER: ("code_interpreter_call", "ci_"),
    MCP: ("mcp_call", "mcp_"),
}
"""The type of an item, and the prefix of its id."""

Told = tuple[str, Fields]
"""An event about an item: its name without `response.`, and its own fields."""


class HostedItem:
    """A call that the server runs."""

    def __init__(self, call: ToolCall, hosted: HostedTools, include: Collection[str]) -> None:
        self._name, self._tool, self._state = call.name, hosted.tools[call.name], hosted.state
        self._include = include
        self._type, prefix = _TYPES[self._tool.kind]
        self.id = new_id(prefix)
        is_code = self._tool.kind == CODE_INTERPRETER
        code = str(call.arguments.get("code", ""))
        self._text = code if is_code else call.arguments_json()
        # With the address of a link that the model names by its number.
        self._arguments = self._state.toolbox.call(call.name, call.arguments).arguments

    def begun(self) -> Iterable[Told]:
        yield f"{self._type}.in_progress", {}
        match self._tool.kind:
            case "web_search":
                yield "web_search_call.searching", {}
            case "code_interpreter":
                yield "code_interpreter_call_code.delta", {"delta": self._text}
                yield "code_interpreter_call_code.done", {"code": self._text}
                yield "code_interpreter_call.interpreting", {}
            case _:
                yield "mcp_call_arguments.delta", {"delta": self._text}
                yield "mcp_call_arguments.done", {"arguments": self._text}

    def ended(self, result: ToolResult) -> Iterable[Told]:
        """Return the events of the result; only calls of MCP servers have one of a failure."""
        if not self._is_failed(result):
            yield f"{self._type}.completed", {}
        elif self._tool.kind == MCP:
            yield "mcp_call.failed", {}

    def item(self, result: ToolResult | None = None) -> Fields:
        status = "in_progress"
        if result is not None:
            status = "failed" if self._is_failed(result) else "completed"
        head = {"id": self.id, "type": self._type, "status": status}
        match self._tool.kind:
            case "web_search":
                return head | {"action": self._action(result.pages if result else ())}
            case "code_interpreter":
                is_shown = "code_interpreter_call.outputs" in self._include
                logs = [{"type": "logs", "logs": result.text}] if result else []
                return head | {
                    "code": self._text if result else "",
                    "container_id": self._state.container_id,
                    "outputs": logs if is_shown else None,
                }
        error = None
        if result is not None and result.is_error:
            told = [{"type": "text", "text": result.text.removeprefix("Error: ")}]
            error = {"type": "mcp_tool_execution_error", "content": told}
        return head | {
            "approval_request_id": None,
            "server_label": self._tool.server,
            "name": self._tool.name,
            "arguments": self._text if result else "",
            "output": result.text if result and not error else None,
            "error": error,
        }

    def _is_failed(self, result: ToolResult) -> bool:
        """Return whether it did not run; code that raises has, and its traceback is its output."""
        is_output = self._tool.kind == CODE_INTERPRETER and not result.text.startswith("Error: ")
        return result.is_error and not is_output

    def _action(self, found: Collection[Page]) -> Fields:
        urls = list(dict.fromkeys(page.url for page in found if page.url))
        arguments, kind = self._arguments, self._name.rpartition(".")[2]
        if kind in ("open", "find"):
            named, cursor = arguments.get("id"), arguments.get("cursor")
            page = self._state.pages.get(cursor) if isinstance(cursor, int) else None
            url = named if isinstance(named, str) else (page.url or None) if page else None
            url = urls[-1] if urls else url
            if kind == "open":
                return {"type": "open_page", "url": url}
            pattern = str(arguments.get("pattern", ""))
            return {"type": "find_in_page", "pattern": pattern, "url": url or ""}
        query = str(arguments.get("query", ""))
        action: Fields = {"type": "search", "query": query, "queries": [query]}
        if urls and "web_search_call.action.sources" in self._include:
            action["sources"] = [{"type": "url", "url": url} for url in urls]
        return action


def tool_list(listing: ToolListing) -> Fields:
    return {
        "id": new_id("mcpl_"),
        "type": "mcp_list_tools",
        "server_label": listing.server,
        "tools": [
            {
                "name": each.name,
                "description": each.tool.description,
                "input_schema": each.tool.parameters,
                "annotations": None,
            }
            for each in listing.tools
        ],
        "error": listing.error or None,
    }
