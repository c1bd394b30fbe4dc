"""Commands that look for words in the open chat, and for messages that were written."""

import re
from functools import partial

from gptoss_local.base.errors import UsageError
from gptoss_local.talk.history.plain import one_line
from tui.chat_parts import ChatParts
from tui.conversation import composed_of
from tui.screens.dialog import LineDialog, PickDialog


async def find(chat: ChatParts, argument: str) -> None:
    """Show words in the chat; with the same words again, further up."""
    if argument:
        await _find(chat, argument)
    else:
        dialog = LineDialog("Find in this chat", chat.found.words)
        chat.app.push_screen(dialog, chat.then(_find))


async def _find(chat: ChatParts, words: str) -> None:
    turns, found = chat.conversation.turns, chat.found
    spots = [(n, at) for n, turn in enumerate(turns) for at in _spots(turn.content, words)]
    if not spots:
        raise UsageError(f"'{one_line(words, 40)}' is not in this chat", hint="F2 searches all.")
    above = [spot for spot in spots if words == found.words and spot < found.spot]
    found.words, found.spot = words, (above or spots)[-1]
    n, at = found.spot
    place = spots.index(found.spot) + 1
    before = [spot for spot in spots[: place - 1] if spot[0] == n]
    share = at / len(turns[n].content)
    await chat.view.transcript.show(turns[n], words, len(before), share)
    chat.app.notify(f"{place} of {len(spots)}; again shows the one above.", markup=False)


def _spots(text: str, words: str) -> list[int]:
    """Return where the words are, as written or as they are seen: without stars and backticks."""
    ways = (text, re.sub(r"[*`]", "", text))
    found = [[m.start() for m in re.finditer(re.escape(words), w, re.IGNORECASE)] for w in ways]
    return found[0] or found[1]


async def recall(chat: ChatParts, _argument: str) -> None:
    """Search sent messages, as a shell's Ctrl-R does."""
    prompt = chat.view.prompt
    stored = [prompt.folded.refold(composed_of(turn)) for turn in chat.history.questions()]
    written = list(dict.fromkeys([*prompt.written, *stored]))

    def chosen(n: int | None) -> None:
        if n is not None:
            chat.view.fill(written[n])

    dialog = PickDialog("Earlier messages", written, partial(one_line, max_chars=200))
    chat.app.push_screen(dialog, chosen)
