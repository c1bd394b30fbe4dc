"""Commands on presets: begin a chat with one."""

from gptoss_local.talk.conversation.tool_choice import without_tools
from gptoss_local.talk.presets import Preset, find_preset
from tui.actions.chats import open_chat
from tui.chat_parts import ChatParts
from tui.screens.errors import errors_shown
from tui.screens.presets import PresetsDialog


async def preset(chat: ChatParts, argument: str) -> None:
    """Begin a chat with a preset, by its name or from a list."""
    if argument:
        await _begin(chat, argument)
        return

    async def chosen(name: str | None) -> None:
        if name:
            with errors_shown(chat.app):
                await _begin(chat, name)

    conversation = chat.conversation
    new = Preset(
        system=conversation.instructions,
        effort=conversation.effort,
        options=without_tools(conversation.options),
    )
    chat.app.push_screen(PresetsDialog(conversation.preset, new), chosen)


async def _begin(chat: ChatParts, name: str) -> None:
    await open_chat(chat, None, preset=find_preset(name))
