"""The open chat: its branch, and all changes to it, stored through `History`."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from gptoss_local.base.errors import AnsweringError, ChatNotFoundError, HistoryError
from gptoss_local.base.types import Effort
from gptoss_local.talk.answer import Answer
from gptoss_local.talk.conversation import (
    instructed,
    messages_of,
    pages_of,
    result_stats,
    without_tools,
)
from gptoss_local.talk.history import History, Turn, Watch, is_temporary
from gptoss_local.talk.presets import Preset
from gptoss_local.talk.tools import Page, ToolResult
from tui.paste import Composed, FoldedPart, folds_of

_SUMMARY = "Summary of the conversation before this point:"
_SUMMARISE = (
    "Summarise our conversation so far, so that it can continue without the messages above: what I "
    "asked and want, what was found and decided, names, numbers, paths and code that are still "
    "needed, and what is open. Reply with the summary alone."
)
_N_SUMMARY = 1536  # tokens


class News(NamedTuple):
    """The changes that other processes have made to the open chat."""

    changed: list[Turn]  # of the branch
    added: list[Turn]  # to its end
    is_deleted: bool = False


class Conversation:
    """A path through the tree of turns, from the first one to a leaf."""

    def __init__(self, history: History, model: str, effort: Effort) -> None:
        self._saved = history
        self.is_temporary = False  # or nothing of the chat is written to disk
        self.model = model
        self.effort: Effort = effort
        self.turns: list[Turn] = []
        self.chat_id: int | None = None  # until the first message: an empty chat is not stored
        self.options: dict[str, Any] = {}  # as in Ollama's API, with `truncate` and `tools`
        self.preset = ""  # that it began with
        self._system = ""
        self._unsaved: dict[int, dict[str, Any]] = {}  # changes to store, by turn
        self._watch = Watch(n_chats=0)
        self._deleted_id: int | None = None  # the chat whose deletion was told

    @property
    def _history(self) -> History:
        return self._saved.temporary if self.is_temporary else self._saved

    @property
    def title(self) -> str:
        """Return the title; empty until the first message, and once the chat is deleted."""
        chat_id, history = self.chat_id, self._history
        return history.chat(chat_id).title if chat_id and history.has(chat_id) else ""

    def new(self, system: str = "", *, is_temporary: bool = False) -> None:
        self.store()
        self.is_temporary = is_temporary
        self.chat_id, self.turns, self._system = None, [], system
        self.options, self.preset = {}, ""

    def begin_with(self, name: str, preset: Preset) -> None:
        self.new(preset.system, is_temporary=self.is_temporary)
        self.preset = name
        self.options = {key: value for key, value in preset.options.items() if value is not False}
        self.effort = preset.effort or self.effort

    @property
    def instructions(self) -> str:
        is_first = bool(self.turns) and self.turns[0].role == "system"
        return self.turns[0].content if is_first else "" if self.turns else self._system

    def open(self, chat_id: int, turn_id: int | None = None) -> None:
        """Continue a stored chat, at its leaf or on the branch with `turn_id`."""
        self.store()
        self.is_temporary = is_temporary(chat_id)
        chat = self._history.chat(chat_id)
        turns = self._history.select(turn_id) if turn_id else self._history.branch(chat.leaf_id)
        self.chat_id, self.turns, self.options = chat_id, turns, dict(chat.options)
        self.preset = chat.preset
        self.model = chat.model or self.model
        if chat.effort in ("low", "medium", "high"):
            self.effort = chat.effort  # type: ignore[assignment]  # narrowed by the line above

    def set_model(self, model: str, effort: Effort) -> None:
        self.model, self.effort = model, effort
        if self.chat_id is not None:
            self._history.set_model(self.chat_id, model, effort)

    def set_option(self, name: str, value: Any) -> None:
        """Set an option of all requests of this chat; None leaves it to the model."""
        self.options = {key: old for key, old in self.options.items() if key != name}
        if value is not None:
            self.options[name] = value
        if self.chat_id is not None:
            self._history.set_options(self.chat_id, self.options)

    def fork(self, turn: Turn) -> None:
        self.open(self._history.fork(turn.id))

    def ask(
        self, text: str, folds: Sequence[FoldedPart] = (), *, instead_of: Turn | None = None
    ) -> Turn:
        """Add a message of the user at the end, or as a sibling of an earlier one.

        Raises AnsweringError while another process writes the last answer, or HistoryError.
        """
        if instead_of is None:
            self._check_leaf()
        if self.chat_id is None:
            self.chat_id = self._history.new_chat(
                self.model, self.effort, preset=self.preset, options=self.options
            )
            if self._system:
                self._add("system", self._system)
        stats = {"folds": [list(fold) for fold in folds]} if folds else {}
        return self._add("user", text, before=instead_of, stats=stats)

    def begin_answer(self, *, instead_of: Turn | None = None, after: Turn | None = None) -> Turn:
        """Add an answer that streams: at the end, as a sibling, or after an answer with calls."""
        model, effort = (after.model, after.effort) if after else (self.model, self.effort)
        made_with: Any = {"model": model, "effort": effort, "state": "streaming"}
        return self._add("assistant", "", before=instead_of, **made_with)

    def continue_answer(self, turn: Turn) -> Turn:
        """Let the last answer, which was cut, grow on; it stays one turn."""
        assert turn.id == self.turns[-1].id
        self.store()
        self._history.update(turn.id, state="streaming")
        made_with: Any = {"model": self.model, "effort": self.effort, "state": "streaming"}
        self.turns = [*self.turns[:-1], msgspec.structs.replace(turn, **made_with)]
        return self.turns[-1]

    def add_result(self, name: str, result: ToolResult) -> Turn:
        return self._add("tool", result.text, tool_name=name, stats=result_stats(result))

    def keep(self, turn: Turn, answer: Answer) -> Turn:
        """Keep a partial answer for `store`; return its turn as it is now."""
        changes = answer.turn_fields()
        self._unsaved[turn.id] = changes
        kept = msgspec.structs.replace(turn, **changes)
        self.turns = [kept if other.id == turn.id else other for other in self.turns]
        return kept

    def store(self) -> None:
        """Write the kept answers; HistoryError: the next call tries again."""
        for turn_id, changes in list(self._unsaved.items()):
            try:
                self._history.update(turn_id, **changes)
            except ChatNotFoundError:
                del self._unsaved[turn_id]
                raise
            del self._unsaved[turn_id]

    def walk(self, turn: Turn, step: int) -> Turn | None:
        """Go to the sibling `step` places on, if any, and down to its newest leaf; return it."""
        siblings = self._history.siblings(turn.id)
        idx = siblings.index(turn.id) + step
        if not 0 <= idx < len(siblings):
            return None
        self.turns = self._history.select(siblings[idx])
        return next(other for other in self.turns if other.id == siblings[idx])

    def catch_up(self) -> News | None:
        """Adopt changes by other processes; None if there are none. PERF: a poll is almost free."""
        if (chat_id := self.chat_id) is None:
            return None
        if (found := self._watch.look(self._saved, chat_id)) is None:
            return None
        is_deleted = found.chat is None and chat_id != self._deleted_id
        if is_deleted:
            self._deleted_id = chat_id  # so that it is said once
        theirs = {turn.id: turn for turn in found.turns if turn.id not in self._unsaved}
        changed = [new for old in self.turns if (new := theirs.get(old.id, old)) != old]
        added: list[Turn] = []
        leaf_id = self.turns[-1].id if self.turns else None
        while newer := [turn for turn in found.turns if turn.parent_id == leaf_id]:
            added.append(newer[-1])
            leaf_id = newer[-1].id
        has_others = not theirs.keys() <= {turn.id for turn in self.turns}
        self.turns = [*(theirs.get(turn.id, turn) for turn in self.turns), *added]
        return News(changed, added, is_deleted) if changed or has_others or is_deleted else None

    def place(self, turn_id: int) -> tuple[int, int]:
        siblings = self._history.siblings(turn_id)
        return siblings.index(turn_id) + 1, len(siblings)

    def pages_before(self, turn_id: int) -> list[Page]:
        return pages_of(turn for turn in self.turns if turn.id < turn_id)

    @property
    def pages(self) -> list[Page]:
        return pages_of(self.turns)

    def last(self, role: str) -> Turn | None:
        return next((turn for turn in reversed(self.turns) if turn.role == role), None)

    @property
    def n_context_tokens(self) -> int:
        """Return the tokens of the context after the last finished answer; 0 if none was."""
        for turn in reversed(self.turns):
            if n_generated := turn.stats.get("eval_count"):
                return int(turn.stats.get("prompt_eval_count", 0) + n_generated)
        return 0

    def request(self, begun: Turn | None = None, more: str = "") -> dict[str, Any]:
        """Return the body of `/api/chat` for the branch, without `begun`, the present answer.

        `more` are further instructions.
        """
        options = without_tools(self.options)
        truncate = {"truncate": True} if options.pop("truncate", False) else {}
        return {
            "model": begun.model if begun else self.model,
            "messages": messages_of(instructed(self.turns, more), begun),
            "think": begun.effort if begun else self.effort,
            "options": options,
            **truncate,
            **self._retention,
        }

    @property
    def _retention(self) -> dict[str, str]:
        return {"prompt_cache_retention": "in_memory"} if self.is_temporary else {}

    @property
    def can_drop(self) -> bool:
        return self.can_summarise and not self.options.get("truncate")

    @property
    def can_summarise(self) -> bool:
        return sum(turn.role == "user" for turn in self.turns) > 1

    def summary_request(self) -> dict[str, Any]:
        earlier = self.turns[: self._idx_of_question()]
        wish = {"role": "user", "content": _SUMMARISE}
        options = {name: value for name, value in self.options.items() if name == "num_ctx"}
        return {
            "model": self.model,
            "messages": [*messages_of(earlier), wish],
            "think": "low",
            "options": options | {"num_predict": _N_SUMMARY},
            "truncate": True,  # a summary of the newest turns is better than none
            **self._retention,
        }

    def go_on_with(self, summary: str) -> Turn:
        """Replace all before the last question by a summary, on a new branch; begin the answer."""
        assert self.chat_id is not None
        self.store()
        asked = [turn for turn in self.turns[self._idx_of_question() :] if turn.state == "done"]
        before = self.instructions.partition(_SUMMARY)[0].rstrip()
        system = f"{before}\n\n{_SUMMARY}\n\n{summary}".lstrip()
        whole = self.turns
        self.turns = self._history.branch_off(self.chat_id, system, asked)
        try:
            return self.begin_answer()
        except HistoryError:
            self.turns = whole
            raise

    def _check_leaf(self) -> None:
        if not self.turns or self.turns[-1].state != "streaming":
            return
        self._history.stop_orphans()  # who wrote it may have died
        leaf = self._history.turn(self.turns[-1].id)
        if leaf.state == "streaming":
            raise AnsweringError(
                "another window writes this answer", hint="Wait, or stop it there."
            )
        self.turns = [*self.turns[:-1], leaf]

    def _idx_of_question(self) -> int:
        return max(n for n, turn in enumerate(self.turns) if turn.role == "user")

    def _add(self, role: Any, content: str, *, before: Turn | None = None, **fields: Any) -> Turn:
        assert self.chat_id is not None
        self.store()
        ids = [turn.id for turn in self.turns]
        kept = self.turns if before is None else self.turns[: ids.index(before.id)]
        parent_id = kept[-1].id if kept else None
        turn = self._history.add(self.chat_id, parent_id, role, content, **fields)
        self.turns = [*kept, turn]
        return turn


def composed_of(turn: Turn) -> Composed:
    return Composed(turn.content, folds_of(turn.stats, turn.content))
