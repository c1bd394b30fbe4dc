"""Request bodies of `/v1/responses`. Source: OpenAI's API reference (Responses)."""

from typing import Annotated, Any

import msgspec

from gptoss_local.base.errors import UsageError
from gptoss_local.harmony import ChatRequest, Message
from gptoss_local.server.body import convert
from gptoss_local.server.dialects.bounds import TopCount, limit_tokens
from gptoss_local.server.dialects.logprobs import openai_count
from gptoss_local.server.dialects.openai.parts import (
    Reasoning,
    SamplingFields,
    parse_effort,
    parse_format,
)
from gptoss_local.server.dialects.openai.response_store import ResponseStore
from gptoss_local.server.dialects.openai.responses_hosted import (
    HostedTools,
    kind_of,
    not_offered,
)
from gptoss_local.server.dialects.openai.responses_hosted_items import HostedHistory
from gptoss_local.server.dialects.openai.responses_items import InputItem, aside, to_messages
from gptoss_local.server.dialects.openai.responses_tools import ClientTools
from gptoss_local.server.dialects.tool_choice import select_tools

_LOGPROBS = "message.output_text.logprobs"


class Text(msgspec.Struct):
    format: dict[str, Any] = msgspec.field(default_factory=dict)


class ResponsesBody(SamplingFields, kw_only=True):
    model: str = ""
    input: str | list[InputItem] = ""
    instructions: str = ""
    max_output_tokens: int | None = None
    text: Text = msgspec.field(default_factory=Text)
    tools: list[dict[str, Any]] = msgspec.field(default_factory=list)
    tool_choice: str | dict[str, Any] = "auto"
    stream: bool = False
    previous_response_id: str = ""
    store: bool = True
    conversation: str | dict[str, Any] = ""
    parallel_tool_calls: bool = True
    truncation: str = "disabled"
    include: list[str] = msgspec.field(default_factory=list)
    max_tool_calls: Annotated[int, msgspec.Meta(ge=0)] | None = None
    top_logprobs: TopCount = 0
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)

    def items(self, remembered: ResponseStore, owner: str) -> list[InputItem]:
        """Return the items before the request, and its own. Raises ResponseNotFoundError."""
        own = self.input
        if isinstance(own, str):
            own = [InputItem(type="message", role="user", content=own)] if own else []
        earlier: list[dict[str, Any]] = []
        if self.previous_response_id:
            earlier = remembered.conversation(owner, self.previous_response_id)
        return convert(list(map(aside, earlier)), list[InputItem]) + [
            convert(aside(remembered.output_item(owner, i.id)), InputItem) if i.is_reference else i
            for i in own
        ]

    def toolbox(self, items: list[InputItem], hosted: HostedTools | None = None) -> ClientTools:
        """Return the tools of the request, of the conversation, and `hosted` by the server."""
        return ClientTools(self.tools, (tool for item in items for tool in item.tools), hosted)

    def to_request(
        self, items: list[InputItem], toolbox: ClientTools, history: HostedHistory | None = None
    ) -> ChatRequest:
        """Make a request of the whole conversation; `history` as for `to_messages`."""
        self._check()
        messages = to_messages(items, toolbox, history)
        if self.instructions:
            messages.insert(0, Message(role="system", content=self.instructions))
        if not messages:
            raise UsageError("input is required")
        effort, form = self._configuration(items)
        wanted, reasoning = parse_effort(effort)
        return ChatRequest(
            streams_calls=self.stream,
            messages=tuple(messages),
            effort=wanted,
            reasoning=reasoning,
            sampling=self.sampling,
            think_budget=self.most_thinking,
            ends_repetition=self.repeat_guard,
            max_tokens=limit_tokens(self.max_output_tokens),
            truncates=self.truncation == "auto",
            format=parse_format(form, form.get("schema")),
            n_logprobs=openai_count(
                *("top_logprobs", self.top_logprobs),
                is_on=_LOGPROBS in self.include,
                needs=f"'include' has '{_LOGPROBS}'",
            ),
            **self._select(toolbox),
        )

    def _select(self, toolbox: ClientTools) -> dict[str, Any]:
        choice, forced = self.tool_choice, list[str]()
        if isinstance(choice, dict) and kind_of(choice):
            forced = toolbox.resolve(choice)
            if not forced:
                raise not_offered(choice)
            choice = "auto"
        one_call = not self.parallel_tool_calls
        fields = select_tools(toolbox.tools, choice, resolve=toolbox.resolve, one_call=one_call)
        return fields | ({"must_call": tuple(forced)} if forced else {})

    def _configuration(self, items: list[InputItem]) -> tuple[str, dict[str, Any]]:
        """Return effort and format, from the last item that sets them or the request itself."""
        effort, form = self.reasoning.effort, self.text.format
        for item in items:
            if item.kind == "configuration_update":
                effort = convert(item.reasoning or {}, Reasoning).effort or effort
                form = convert(item.text or {}, Text).format or form
        return effort, form

    def _check(self) -> None:
        if not self.model:
            raise UsageError("model is required")
        if self.conversation:
            raise UsageError(
                "conversations are not stored, so conversation names nothing",
                hint="Send previous_response_id, or the whole conversation as input.",
            )
