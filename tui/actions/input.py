"""Commands on what is typed: attach files to it."""

from gptoss_local.errors import UsageError
from tui.chat_parts import ChatParts
from tui.paste import expanded


async def attach(chat: ChatParts, argument: str) -> None:
    """Put a chip for a file, a folder or a pattern into the input."""
    if not argument:
        raise UsageError("/attach needs a path", hint="/attach notes.md, /attach src, /attach *.py")
    chat.view.attach(str(expanded(argument)))
