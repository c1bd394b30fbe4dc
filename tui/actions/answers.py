"""Commands on messages and answers: edit, answer again, compare, copy, inspect."""

from gptoss_local.base.errors import UsageError
from gptoss_local.base.quantities import counted
from gptoss_local.talk.citations import linked
from gptoss_local.talk.conversation import instructed, messages_of, was_cut
from gptoss_local.talk.history import Turn
from gptoss_local.talk.history.plain import one_line
from tui.actions.choices import next_effort
from tui.chat_parts import ChatParts
from tui.markdown_blocks import code_blocks, links_of
from tui.screens.compare import CompareDialog
from tui.screens.dialog import PickDialog
from tui.screens.inspector import InspectorDialog


async def edit(chat: ChatParts, argument: str) -> None:
    n = _number(argument)
    turns = [turn for turn in chat.conversation.turns if turn.role == "user"]
    if n > len(turns):
        raise UsageError(f"the chat has {counted(len(turns), 'message')} to edit")
    chat.dialogue.edit(turns[-n])


async def edit_turn(chat: ChatParts, turn: Turn) -> None:
    if turn.role == "user":
        chat.dialogue.edit(turn)
    elif turn.role == "assistant":
        await _answer_again(chat, turn)


async def now(chat: ChatParts, _argument: str) -> None:
    await chat.dialogue.answer_now()


async def retry(chat: ChatParts, _argument: str) -> None:
    turns = chat.conversation.turns
    if turns and turns[-1].role == "assistant":
        await _answer_again(chat, turns[-1])
    elif turns and turns[-1].role in ("user", "tool"):  # its answer was never begun
        await chat.dialogue.begin(chat.conversation.begin_answer(), is_new=True)
    else:
        raise UsageError("there is no answer to repeat")


async def continue_(chat: ChatParts, _argument: str) -> None:
    turns = chat.conversation.turns
    if not turns or turns[-1].role != "assistant":
        raise UsageError("there is no answer to continue")
    await continue_turn(chat, turns[-1])


async def continue_turn(chat: ChatParts, turn: Turn) -> None:
    if turn.id != chat.conversation.turns[-1].id:
        raise UsageError("only the last answer can be continued", hint="/branch begins there.")
    if not was_cut(turn):
        raise UsageError("this answer was not cut", hint="/retry answers again.")
    await chat.dialogue.begin(chat.conversation.continue_answer(turn), is_new=False)


async def again(chat: ChatParts, _argument: str) -> None:
    conversation = chat.conversation
    asked = conversation.last("user")
    after = conversation.turns[conversation.turns.index(asked) + 1 :] if asked else []
    if not after:
        raise UsageError("there is no answer to repeat")
    conversation.set_model(conversation.model, next_effort(conversation.effort))
    await _answer_again(chat, after[0])


async def compare(chat: ChatParts, _argument: str) -> None:
    """Show the versions of an answer side by side: the last answer with several."""
    conversation, history = chat.conversation, chat.history.of(chat.conversation.chat_id)
    for turn in reversed(conversation.turns):
        versions = history.siblings(turn.id) if turn.role == "assistant" else []
        if len(versions) > 1:
            chat.app.push_screen(CompareDialog([history.turn(v) for v in versions]))
            return
    raise UsageError("no answer has several versions", hint="F5 answers again with another effort.")


async def stats(chat: ChatParts, argument: str) -> None:
    if argument not in ("", "on", "off"):
        raise UsageError("/stats is on or off")
    chat.view.toggle_speed(argument == "on" if argument else None)


async def inspect(chat: ChatParts, _argument: str) -> None:
    conversation = chat.conversation
    turn = conversation.last("assistant")
    if turn is None:
        raise UsageError("there is no answer to look into")
    before = conversation.turns[: conversation.turns.index(turn)]
    messages = messages_of(instructed(before, chat.toolbox.instructions))
    body = conversation.request() | {"messages": messages}
    await chat.toolbox.prepare()
    if tools := chat.toolbox.declared():
        body["tools"] = tools
    body |= {
        "answer": next(iter(messages_of([turn])), None),
        "tokens": turn.stats.get("tokens", []),
    }
    n_keys = chat.view.typing.n_keys
    chat.open_dialog(InspectorDialog(await chat.server.inspect(body)), since=n_keys)


async def copy(chat: ChatParts, argument: str) -> None:
    """Copy the last answer, or one of its code blocks; `block` asks which."""
    texts = [t.content for t in chat.conversation.turns if t.role == "assistant" and t.content]
    if not texts:
        raise UsageError("there is no answer to copy")
    text = texts[-1]
    if not argument:
        chat.app.copy_to_clipboard(text)
        return
    blocks = code_blocks(text)
    n = 1 if argument == "block" else _number(argument)
    if n > len(blocks):
        raise UsageError(f"the last answer has {counted(len(blocks), 'code block')}")

    def chosen(idx: int | None) -> None:
        if idx is not None:
            chat.app.copy_to_clipboard(blocks[idx])

    if argument == "block" and len(blocks) > 1:
        lines = [f"{n}  {about}" for n, about in blocks_in(text)]
        chat.app.push_screen(PickDialog("Copy a code block", lines), chosen)
    else:
        chosen(n - 1)


def blocks_in(text: str) -> list[tuple[str, str]]:
    """Return the numbers of an answer's code blocks, with their first lines."""
    blocks = enumerate(code_blocks(text), 1)
    return [
        (str(n), f"{one_line(block, 50)}  {counted(block.count(chr(10)), 'line')}")
        for n, block in blocks
    ]


async def open_(chat: ChatParts, argument: str) -> None:
    """Open a link of the last answer in the browser, after its address was shown."""
    links = links_in(chat)
    n = _number(argument)
    if n > len(links):
        raise UsageError(f"the last answer has {counted(len(links), 'link')}")

    def chosen(idx: int | None) -> None:
        if idx is not None:
            chat.app.open_url(links[idx])

    if argument:
        chosen(n - 1)
    else:
        chat.app.push_screen(PickDialog("Open a link", links), chosen)


def links_in(chat: ChatParts) -> list[str]:
    """Return the links of the last answer, with the pages that it cites."""
    turn = chat.conversation.last("assistant")
    if turn is None:
        return []
    return links_of(linked(turn.content, chat.conversation.pages_before(turn.id)))


async def _answer_again(chat: ChatParts, turn: Turn) -> None:
    await chat.dialogue.begin(chat.conversation.begin_answer(instead_of=turn), is_new=False)


def _number(argument: str) -> int:
    if argument and not (argument.isdecimal() and len(argument) < 10 and int(argument)):
        raise UsageError(f"'{argument}' is not a number from 1 on")
    return int(argument or 1)
