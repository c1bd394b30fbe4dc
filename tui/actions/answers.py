"""Commands on messages and answers: edit, answer anew, compare, copy, look into."""

from typing import TYPE_CHECKING

from gptoss_local.errors import UsageError
from tui.actions.choices import next_effort
from tui.conversation import messages_of
from tui.history import Turn
from tui.markdown_blocks import code_blocks
from tui.printable import printable
from tui.screens.compare import CompareDialog
from tui.screens.inspector import InspectorDialog

if TYPE_CHECKING:
    from tui.screens.chat import ChatScreen


async def edit(screen: "ChatScreen", argument: str) -> None:
    """Edit the last message, or the n-th last; what is sent becomes another version of it."""
    n = _number(argument)
    turns = [turn for turn in screen.conversation.turns if turn.role == "user"]
    if n > len(turns):
        raise UsageError(f"there are {len(turns)} messages to edit")
    screen.dialogue.edit(turns[-n])


async def edit_turn(screen: "ChatScreen", turn: Turn) -> None:
    """Edit a message, or answer anew."""
    if turn.role == "user":
        screen.dialogue.edit(turn)
    elif turn.role == "assistant":
        await _answer_anew(screen, turn)


async def retry(screen: "ChatScreen", _argument: str) -> None:
    """Answer the last message anew; the old answer stays as another version."""
    turns = screen.conversation.turns
    if turns and turns[-1].role == "assistant":
        await _answer_anew(screen, turns[-1])
    elif turns and turns[-1].role in ("user", "tool"):  # its answer was never begun
        await screen.dialogue.begin(screen.conversation.begin_answer(), is_new=True)
    else:
        raise UsageError("there is no answer to repeat")


async def again(screen: "ChatScreen", _argument: str) -> None:
    """Answer the last message anew with the next effort; the old answer stays."""
    conversation = screen.conversation
    asked = conversation.last("user")
    after = conversation.turns[conversation.turns.index(asked) + 1 :] if asked else []
    if not after:
        raise UsageError("there is no answer to repeat")
    conversation.set_model(conversation.model, next_effort(conversation.effort))
    await _answer_anew(screen, after[0])


async def compare(screen: "ChatScreen", _argument: str) -> None:
    """Show the versions of the last answer that has several, side by side."""
    conversation = screen.conversation
    for turn in reversed(conversation.turns):
        versions = screen.history.siblings(turn.id) if turn.role == "assistant" else []
        if len(versions) > 1:
            screen.app.push_screen(CompareDialog([screen.history.turn(v) for v in versions]))
            return
    raise UsageError("no answer has several versions", hint="F5 answers anew with another effort.")


async def stats(screen: "ChatScreen", _argument: str) -> None:
    """Show or hide where the time of the answers goes."""
    screen.speed.toggle()
    screen.show_speed()


async def inspect(screen: "ChatScreen", _argument: str) -> None:
    """Show the last answer in harmony: messages, token ids, what the next prompt drops."""
    conversation = screen.conversation
    turn = conversation.last("assistant")
    if turn is None:
        raise UsageError("there is no answer to look into")
    before = conversation.turns[: conversation.turns.index(turn)]
    body = conversation.request() | {"messages": messages_of(before)}
    if tools := screen.toolbox.declared():
        body["tools"] = tools
    body |= {
        "answer": next(iter(messages_of([turn])), None),
        "tokens": turn.stats.get("tokens", []),
    }
    screen.app.push_screen(InspectorDialog(await screen.server.inspect(body)))


async def copy(screen: "ChatScreen", argument: str) -> None:
    """Copy the last answer, or its n-th code block."""
    answers = [t for t in screen.conversation.turns if t.role == "assistant" and t.content]
    if not answers:
        raise UsageError("there is no answer to copy")
    turn = answers[-1]
    if not argument:
        copy_text(screen, turn.content)
        return
    blocks = code_blocks(turn.content)
    n = _number(argument)
    if n > len(blocks):
        raise UsageError(f"the last answer has {len(blocks)} code blocks")
    copy_text(screen, blocks[n - 1])


def copy_text(screen: "ChatScreen", text: str) -> None:
    """Copy what a model wrote, without control characters."""
    screen.app.copy_to_clipboard(printable(text))
    screen.notify(f"Copied {len(text):,} characters.")


async def _answer_anew(screen: "ChatScreen", turn: Turn) -> None:
    await screen.dialogue.begin(screen.conversation.begin_answer(instead_of=turn), is_new=False)


def _number(argument: str) -> int:
    if argument and not (argument.isdecimal() and len(argument) < 10 and int(argument)):
        raise UsageError(f"'{argument}' is no number from 1")
    return int(argument or 1)
