"""One conversation with a model."""

from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from gptoss_local.base.errors import GptOssError
from gptoss_local.base.events import ChatEvent, Growing, ToolCall
from gptoss_local.cli._printer import Printer
from gptoss_local.talk.answer import Answer

if TYPE_CHECKING:
    from gptoss_local.api.client import Client
    from gptoss_local.talk.tools import Toolbox, ToolResult
    from tui.paste import FoldedPart


class Tools(Protocol):
    """`RunTools`, which leads an answer with its calls; those without tools need not load it."""

    toolbox: "Toolbox"

    def lead(self) -> None: ...

    def close(self) -> None: ...


@dataclass
class Chat:
    """A conversation with the settings of its next question, as in `POST /api/chat`.

    An empty `system` stands for the model's own. If it `is_temporary`, nothing goes to disk.
    """

    client: "Client"
    model: str
    printer: Printer
    think: str | bool = "medium"
    system: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    format: Any = None
    keep_alive: str | int | None = None
    is_temporary: bool = False
    tools: Tools | None = None
    messages: list[dict[str, Any]] = field(default_factory=list)
    folds: "tuple[FoldedPart, ...]" = ()  # of the last question, where it is saved
    answer: Answer = field(default_factory=Answer, init=False)
    _exchange: list[dict[str, Any]] = field(default_factory=list, init=False)

    def load_request(self) -> dict[str, Any]:
        keep_alive = {} if self.keep_alive is None else {"keep_alive": self.keep_alive}
        return {"model": self.model, "options": self.options, **keep_alive}

    def ask(self, text: str) -> bool:
        """Print the answer, run its calls; False after Ctrl-C. Errors take back the question."""
        self._exchange = [{"role": "user", "content": text}]
        is_whole = True
        try:
            if self.tools is None:
                self.answer = Answer()
                with closing(self.events([])) as events:
                    for event in events:
                        self.answer.add(event)
                        self.printer.show(event)
            else:
                self.tools.lead()
        except KeyboardInterrupt:
            is_whole = False
        finally:
            self.printer.end()
        if is_whole:
            self.printer.show_end(self.model, self.answer.done)
        else:
            self.printer.stopped()
        self.messages += self._exchange
        return is_whole

    def events(self, tools: list[dict[str, Any]]) -> Generator[ChatEvent, None, None]:
        """Yield the events of `answer`, which becomes a message as far as it came."""
        answer = self.answer
        events = self.client.stream_chat(self._request(tools))
        try:
            for event in events:
                if isinstance(event, Growing):
                    self.printer.grow(self.client, self.model, event)
                yield event
        finally:
            events.close()
            self.printer.end()
            said: dict[str, Any] = {"role": "assistant", "content": answer.content}
            if self.tools is not None and answer.calls and answer.phase == "done":
                said |= {"tool_calls": answer.tool_calls, "thinking": answer.reasoning}
            self._exchange.append(said)

    def take(self, call: ToolCall, result: "ToolResult") -> None:
        told = {"role": "tool", "tool_name": call.name, "content": result.text}
        self._exchange.append(told)

    def _request(self, tools: list[dict[str, Any]]) -> dict[str, Any]:
        system = [{"role": "system", "content": self.system}] if self.system else []
        return self.load_request() | {
            "messages": [*system, *self.messages, *self._exchange],
            "think": self.think,
            "format": self.format,
            "return_progress": True,  # with which the server says that the context grows
            **({"tools": tools} if tools else {}),
            **({"prompt_cache_retention": "in_memory"} if self.is_temporary else {}),
        }

    def ask_again(self) -> bool:
        """Ask the last question once more, in place of its answer, which stays after an error."""
        kept = self.messages
        asked = max(n for n, message in enumerate(kept) if message["role"] == "user")
        self.messages = kept[:asked]
        try:
            return self.ask(kept[asked]["content"])
        except GptOssError:
            self.messages = kept
            raise
