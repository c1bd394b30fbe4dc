"""The start page, and a short list of chats: on it, and next to the open chat on a wide screen."""

from collections.abc import Collection, Sequence

from textual.content import Content
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from gptoss_local.api.gptoss import ServerStatus
from gptoss_local.api.models import RunningModel
from gptoss_local.base.printable import printable
from gptoss_local.talk.history import ChatSummary
from gptoss_local.talk.history.plain import one_line
from tui.conversation import Conversation
from tui.widgets.status_line import memory_text

_HINT = """\
gpt-oss, on this machine. Nothing you type leaves it.

Model    {model}, {effort} effort, {loaded}
Memory   {memory}

Enter sends, Ctrl-J begins a new line, Esc stops an answer.
/ lists the commands, F2 your chats, F1 all keys."""
_MAX_INSTRUCTIONS = 300


class ChatList(OptionList, can_focus=False):
    """Opens a chat on a click; the keyboard stays with the input, and F2 lists all of them."""

    DEFAULT_CSS = """
    ChatList {
        border: none; background: transparent; padding: 0 1; color: $text-muted;
        text-wrap: nowrap; text-overflow: ellipsis; scrollbar-size-vertical: 1;
        & > .option-list--option-highlighted {
            background: transparent; color: $text-accent; text-style: bold;
        }
    }
    """

    def __init__(self, place: str) -> None:
        super().__init__(markup=False, id=place)
        self._shown: object = None

    def show(
        self, chats: Sequence[ChatSummary], open_id: int | None, busy: Collection[int]
    ) -> None:
        lines = [(str(c.id), f"{'… ' * (c.id in busy)}{c.title or '(no title)'}") for c in chats]
        if (shown := (lines, open_id)) == self._shown:
            return
        self._shown = shown
        self.set_options(Option(Content(line), id=name) for name, line in lines)
        ids = [chat.id for chat in chats]
        self.highlighted = ids.index(open_id) if open_id in ids else None


def hint_text(
    conversation: Conversation,
    loaded: RunningModel | None,
    machine: ServerStatus | None,
    work: str = "",
) -> str:
    n_ctx = f"in memory with a context of {loaded.context_length:,}" if loaded else ""
    hint = _HINT.format(
        model=printable(conversation.model),
        effort=conversation.effort,
        loaded=n_ctx or "loaded with your first message",
        memory=memory_text(machine.gpus if machine else ()) or "RAM, no GPU",
    )
    about = one_line(conversation.instructions, _MAX_INSTRUCTIONS)
    name = f"Preset {conversation.preset}: " if conversation.preset else "Instructions: "
    begins = f"\n\n{name}{about}" if about or conversation.preset else ""
    kept = "\n\nTemporary: nothing of this chat is kept." if conversation.is_temporary else ""
    works = f"\n\n{work}." if work else ""
    return f"{hint}{works}{kept}{begins}"
