"""Output items of `/v1/responses` that grow while the model writes."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gptoss_local.harmony import ContentDelta, ReasoningDelta, ToolCall
from gptoss_local.server.dialects.history import SEAL
from gptoss_local.server.dialects.logprobs import OpenAILogprob, openai_logprobs
from gptoss_local.server.dialects.openai.parts import new_id
from gptoss_local.server.dialects.openai.responses_tools import Origin
from gptoss_local.talk.citations import find_citations
from gptoss_local.talk.tools import Page

TextDelta = ReasoningDelta | ContentDelta


class CallItem:
    """A call while it is written: its state, and the fields of the events about it."""

    def __init__(self, output_index: int, call_id: str, origin: Origin) -> None:
        is_custom = origin.kind == "custom"
        kind, self._field = (
            ("custom_tool_call", "input") if is_custom else ("function_call", "arguments")
        )
        self.event = f"response.{kind}_{self._field}"
        self.call_id = call_id
        self._name = origin.name
        self._texts: list[str] = []
        item_id = new_id("ctc_" if is_custom else "fc_")
        self._item = {"id": item_id, "type": kind, "call_id": call_id, "name": origin.name}
        if origin.namespace:
            self._item["namespace"] = origin.namespace
        self._place = {"item_id": item_id, "output_index": output_index}

    @property
    def text(self) -> str:
        return "".join(self._texts)

    def added(self) -> dict[str, Any]:
        item = self._item | {"status": "in_progress", self._field: ""}
        return {"output_index": self._place["output_index"], "item": item}

    def delta(self, text: str) -> dict[str, Any]:
        self._texts.append(text)
        return self._place | {"delta": text}

    def text_done(self) -> dict[str, Any]:
        return self._place | {"name": self._name, self._field: self.text}

    def done(self, status: str) -> dict[str, Any]:
        return self._item | {"status": status, self._field: self.text}


def own_item(kind: str, call: ToolCall) -> dict[str, Any]:
    """Return the call of a tool whose kind has an item of its own."""
    given = call.arguments
    if kind == "local_shell":
        given = {"action": {"type": "exec", "env": {}} | given}
    elif kind == "shell":
        given = {"action": {"timeout_ms": None, "max_output_length": None} | given}
    item_id = new_id("item_")
    head = {"id": item_id, "type": f"{kind}_call", "status": "completed", "call_id": call.id}
    return head | given


class TextItem(ABC):
    """An output item that grows: its state, and the fields of the events about it."""

    id_prefix: str
    part_event: str
    text_event: str
    part_index: str

    def __init__(self, output_index: int, first: TextDelta) -> None:
        self._id = new_id(self.id_prefix)
        self._output_index = output_index
        self._texts: list[str] = []
        self._logprobs: list[OpenAILogprob] = []

    def added(self) -> dict[str, Any]:
        return {"output_index": self._output_index, "item": self._item("in_progress", [])}

    def part(self) -> dict[str, Any]:
        return {**self._place(), "part": self._part()}

    def delta(self, delta: TextDelta) -> dict[str, Any]:
        logprobs = openai_logprobs(delta.logprobs) if isinstance(delta, ContentDelta) else []
        self._texts.append(delta.own_text)
        self._logprobs += logprobs
        return {**self._place(), "delta": delta.own_text, **self._extra(logprobs)}

    def text_done(self) -> dict[str, Any]:
        return {**self._place(), "text": "".join(self._texts), **self._extra(self._logprobs)}

    def done(self, status: str) -> dict[str, Any]:
        return self._item(status, [self._part()])

    def _place(self) -> dict[str, Any]:
        return {"item_id": self._id, "output_index": self._output_index, self.part_index: 0}

    def _extra(self, logprobs: Sequence[OpenAILogprob]) -> dict[str, Any]:
        return {}

    @abstractmethod
    def _part(self) -> dict[str, Any]: ...

    @abstractmethod
    def _item(self, status: str, parts: list[dict[str, Any]]) -> dict[str, Any]: ...


class ReasoningItem(TextItem):
    id_prefix = "rs_"
    part_event = "reasoning_summary_part"
    text_event = "reasoning_summary_text"
    part_index = "summary_index"

    def _part(self) -> dict[str, Any]:
        return {"type": "summary_text", "text": "".join(self._texts)}

    def _item(self, status: str, parts: list[dict[str, Any]]) -> dict[str, Any]:
        text = "".join(part["text"] for part in parts)
        return {
            "id": self._id,
            "type": "reasoning",
            "summary": parts,
            "content": [{"type": "reasoning_text", "text": text}] if text else [],
            "encrypted_content": SEAL + text if text else None,
        }


class MessageItem(TextItem):
    id_prefix = "msg_"
    part_event = "content_part"
    text_event = "output_text"
    part_index = "content_index"

    def __init__(self, output_index: int, first: TextDelta) -> None:
        super().__init__(output_index, first)
        is_preamble = isinstance(first, ContentDelta) and first.is_preamble
        self._phase = "commentary" if is_preamble else "final_answer"
        self._annotations: list[dict[str, Any]] = []

    def annotate(self, pages: Mapping[int, Page]) -> Iterable[dict[str, Any]]:
        """Note the pages that the whole text cites, and return the fields of the events."""
        # The marks stay in the text, as the model wrote it.
        self._annotations = [
            {
                "type": "url_citation",
                "start_index": mark.start,
                "end_index": mark.end,
                "url": page.url,
                "title": page.title or page.url,
            }
            for mark in find_citations("".join(self._texts))
            if (page := pages.get(mark.cursor)) and page.url
        ]
        for index, annotation in enumerate(self._annotations):
            yield {**self._place(), "annotation_index": index, "annotation": annotation}

    def _extra(self, logprobs: Sequence[OpenAILogprob]) -> dict[str, Any]:
        return {"logprobs": list(logprobs)}

    def _part(self) -> dict[str, Any]:
        text = "".join(self._texts)
        extra = self._extra(self._logprobs)
        return {"type": "output_text", "text": text, "annotations": self._annotations, **extra}

    def _item(self, status: str, parts: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self._id,
            "type": "message",
            "status": status,
            "role": "assistant",
            "phase": self._phase,
            "content": parts,
        }
