"""Commands on chats: begin, open, branch, write to a file, leave."""

import re
from functools import partial

from gptoss_local.base.errors import UsageError
from gptoss_local.base.quantities import counted
from gptoss_local.base.whole_file import PRIVATE
from gptoss_local.models.catalog import DEVICE
from gptoss_local.talk.conversation import without_tools
from gptoss_local.talk.history import read_export
from gptoss_local.talk.presets import Preset, find_preset
from tui.chat_parts import ChatParts
from tui.paste import expanded
from tui.screens.chats import ChatsDialog, Place
from tui.screens.presets import PresetsDialog
from tui.widgets.turn_view import TurnView


async def open_chat(
    chat: ChatParts,
    place: Place | None,
    *,
    system: str = "",
    preset: tuple[str, Preset] | None = None,
    is_temporary: bool = False,
) -> None:
    """Open a stored chat, or begin one, with a system message or a preset."""
    if chat.conversation.is_temporary:
        chat.view.fill("")  # a text that was not sent must not become a draft of another chat
    chat = await chat.rooms.enter(place.chat_id if place else None)
    conversation, dialogue = chat.conversation, chat.dialogue
    if place is not None and dialogue.is_busy:  # as it was left
        await chat.view.show_branch()
        chat.view.model_changed()
        return
    if place is not None:
        conversation.open(place.chat_id, place.turn_id)
    elif preset is not None:
        conversation.begin_with(*preset)
    else:
        conversation.new(system, is_temporary=is_temporary)
    dialogue.reset()
    await chat.open_tools()
    found = [turn for turn in conversation.turns if place and turn.id == place.turn_id]
    await chat.view.show_branch(found[0] if found else None)
    if found and place is not None and (words := _found_in(found[0].content, place.words)):
        await chat.view.transcript.show(found[0], words)
    chat.view.model_changed()


def _found_in(text: str, words: str) -> str:
    """Return the words as searched for, or the first of them that the text has."""
    tried = [words, *words.split()]
    return next((each for each in tried if each.casefold() in text.casefold()), "")


async def new(chat: ChatParts, _argument: str) -> None:
    is_temporary = chat.conversation.is_temporary
    await open_chat(chat, None, is_temporary=is_temporary)
    if is_temporary:
        chat.app.notify("This one is temporary, too; /temporary begins one that is kept.")


async def temporary(chat: ChatParts, _argument: str) -> None:
    is_temporary = not chat.conversation.is_temporary
    await open_chat(chat, None, is_temporary=is_temporary)
    kept = "Nothing of this chat is kept: it ends when you leave it."
    chat.app.notify(kept if is_temporary else "This chat is kept.")


async def system(chat: ChatParts, argument: str) -> None:
    if not argument:
        raise UsageError("/system needs a text", hint="/system Answer in one sentence.")
    is_temporary = chat.conversation.is_temporary
    await open_chat(chat, None, system=argument, is_temporary=is_temporary)
    chat.app.notify("A new chat begins with these instructions.", markup=False)


async def resume(chat: ChatParts, argument: str) -> None:
    async def delete(chat_id: int) -> None:
        await chat.rooms.end_answer(chat_id)
        chat.history.delete(chat_id)
        if chat_id == chat.view.conversation.chat_id:  # its next message would have no place
            await open_chat(chat, None)

    export, import_ = partial(write_export, chat), partial(import_chat, chat)
    dialog = ChatsDialog(chat.history, export, import_, delete, words=argument)
    chat.app.push_screen(dialog, chat.then(open_chat))


async def branch(chat: ChatParts, _argument: str) -> None:
    """Continue in a new chat with this branch, up to the focused message; this chat stays."""
    turns = chat.conversation.turns
    focused = chat.view.focused
    turn = focused.turn if isinstance(focused, TurnView) else turns[-1] if turns else None
    if turn is None:
        raise UsageError("there is nothing to branch from yet")
    chat.conversation.fork(turn)
    chat.dialogue.reset()
    await chat.view.show_branch()
    old = "is gone" if chat.conversation.is_temporary else "is among your chats"
    chat.app.notify(f"A new chat continues from here; the old one {old}.")


async def export(chat: ChatParts, argument: str) -> None:
    if (chat_id := chat.conversation.chat_id) is None:
        raise UsageError("there is nothing to export yet")
    write_export(chat, chat_id, argument)


def write_export(chat: ChatParts, chat_id: int, argument: str = "") -> None:
    """Write a chat to a new file; one that exists is never overwritten."""
    history = chat.history.of(chat_id)
    title = history.chat(chat_id).title
    name = re.sub(r"[^\w-]+", "-", title).strip("-").lower()[:50] or "chat"
    if re.fullmatch(DEVICE, name):  # of Windows: con.md would be its console
        name += "-chat"
    path = expanded(argument or f"{name}.md")
    is_json = path.suffix == ".json"
    text = history.export_json(chat_id) if is_json else history.export_markdown(chat_id)
    try:
        with open(path, "x", encoding="utf-8", newline="\n", opener=PRIVATE) as file:
            file.write(text)
    except FileExistsError as error:
        raise UsageError(f"{path} already exists", hint="/export OTHER-NAME.md") from error
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error
    chat.app.notify(f"Wrote {path.resolve()}", markup=False)


async def import_(chat: ChatParts, argument: str) -> None:
    if not argument:
        raise UsageError("/import needs a file", hint="/export NAME.json writes one.")
    await open_chat(chat, Place(import_chat(chat, argument), None))


def import_chat(chat: ChatParts, argument: str) -> int:
    """Add exported chats, and return the number of the first."""
    found = read_export(expanded(argument))
    first, *others = [chat.history.add_tree(*each) for each in found.chats]
    words = f" and {counted(len(others), 'other chat')}" if others else ""
    for said in (f"Imported “{first.title}”{words}.", *found.notes):
        chat.app.notify(said, markup=False)
    return first.id


async def quit_(chat: ChatParts, _argument: str) -> None:
    chat.app.exit()


async def preset(chat: ChatParts, argument: str) -> None:
    if argument:
        await _begin(chat, argument)
        return
    conversation = chat.conversation
    new = Preset(
        system=conversation.instructions,
        effort=conversation.effort,
        options=without_tools(conversation.options),
    )
    chat.app.push_screen(PresetsDialog(conversation.preset, new), chat.then(_begin))


async def _begin(chat: ChatParts, name: str) -> None:
    await open_chat(chat, None, preset=find_preset(name))
