"""Commands on chats: begin, open, branch, write to a file, leave."""

import re
from functools import partial
from typing import TYPE_CHECKING

from gptoss_local.errors import UsageError
from tui.paste import expanded
from tui.screens.chats import ChatsDialog, Place
from tui.screens.errors import telling
from tui.widgets.turn_view import TurnView

if TYPE_CHECKING:
    from tui.screens.chat import ChatScreen


async def new(screen: "ChatScreen", _argument: str) -> None:
    """Begin an empty chat."""
    await screen.open_chat(None)


async def system(screen: "ChatScreen", argument: str) -> None:
    """Begin an empty chat with instructions."""
    if not argument:
        raise UsageError("/system needs a text", hint="/system Answer in one sentence.")
    await screen.open_chat(None, system=argument)
    screen.notify("A new chat begins with these instructions.", markup=False)


async def resume(screen: "ChatScreen", argument: str) -> None:
    """Choose a chat to go on with; words search all chats."""

    async def chosen(place: Place | None) -> None:
        if place is not None:
            with telling(screen):
                await screen.open_chat(place)

    async def deleted(chat_id: int) -> None:
        if chat_id == screen.conversation.chat_id:  # its next message would have no place
            await screen.open_chat(None)

    export = partial(write_export, screen)
    dialog = ChatsDialog(screen.history, export, deleted, argument)
    screen.app.push_screen(dialog, chosen)


async def branch(screen: "ChatScreen", _argument: str) -> None:
    """Go on in a new chat with this branch, up to the focused message; this chat stays."""
    turns = screen.conversation.turns
    focused = screen.focused
    turn = focused.turn if isinstance(focused, TurnView) else turns[-1] if turns else None
    if turn is None:
        raise UsageError("there is nothing to branch from yet")
    screen.conversation.fork(turn)
    screen.dialogue.reset()
    await screen.show_branch()
    screen.prompt.focus()
    screen.notify("A new chat goes on from here; the old one is among your chats.")


async def export(screen: "ChatScreen", argument: str) -> None:
    """Write the chat to a file, as JSON if its name ends so, else as Markdown."""
    chat = screen.conversation.summary
    if chat is None:
        raise UsageError("there is nothing to export yet")
    write_export(screen, chat.id, argument)


def write_export(screen: "ChatScreen", chat_id: int, argument: str = "") -> None:
    """Write a chat to a new file; one that exists is never overwritten."""
    title = screen.history.chat(chat_id).title
    name = re.sub(r"[^\w-]+", "-", title).strip("-").lower()[:50] or "chat"
    path = expanded(argument or f"{name}.md")
    is_json = path.suffix == ".json"
    history = screen.history
    text = history.export_json(chat_id) if is_json else history.export_markdown(chat_id)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise UsageError(f"{path} exists already", hint="/export OTHER-NAME.md") from error
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error
    screen.notify(f"Wrote {path.resolve()}", markup=False)


async def quit_chat(screen: "ChatScreen", _argument: str) -> None:
    """Leave; everything is saved."""
    screen.app.exit()
