"""The tools of recent chats, with their memory and the chats' trust in them."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

from gptoss_local.talk.conversation import ToolChoice, pages_of
from gptoss_local.talk.history import ChatSummary, Turn
from gptoss_local.talk.tools import Toolbox, ToolSources

_N_KEPT = 8  # chats without an answer that runs


class _Kept:
    def __init__(self, toolbox: Toolbox) -> None:
        self.toolbox = toolbox
        self.choice = ToolChoice(toolbox)
        self.n_uses = 0


class Toolboxes:
    """Makes toolboxes of chats when needed, and ends the least recently used ones."""

    def __init__(self, sources: ToolSources) -> None:
        self._sources = sources
        self._kept: OrderedDict[int, _Kept] = OrderedDict()
        self._lock = asyncio.Lock()

    @asynccontextmanager
    async def use(self, chat: ChatSummary, branch: Sequence[Turn]) -> AsyncGenerator[Toolbox, None]:
        """Yield the toolbox of a chat, with the chat's choice of tools on."""
        async with self._lock:
            kept = self._kept.get(chat.id)
            if kept is None:
                kept = _Kept(self._sources.toolbox())
                await kept.toolbox.new_chat(pages_of(branch))
                self._kept[chat.id] = kept
            self._kept.move_to_end(chat.id)
            kept.n_uses += 1
        kept.choice.take(chat.options)
        try:
            yield kept.toolbox
        finally:
            kept.n_uses -= 1
            await self._end_oldest()

    @asynccontextmanager
    async def use_new(self) -> AsyncGenerator[Toolbox, None]:
        """Yield the tools of a new chat for a moment."""
        toolbox = self._sources.toolbox()
        try:
            yield toolbox
        finally:
            await toolbox.close()

    async def renew(self) -> None:
        """Use the MCP servers of a configuration that was changed."""
        await self._sources.renew(kept.toolbox for kept in self._kept.values())

    async def drop(self, chat_id: int) -> None:
        if kept := self._kept.pop(chat_id, None):
            await kept.toolbox.close()

    async def close(self) -> None:
        for chat_id in list(self._kept):
            await self.drop(chat_id)

    async def _end_oldest(self) -> None:
        idle = [chat_id for chat_id, kept in self._kept.items() if not kept.n_uses]
        for chat_id in idle[:-_N_KEPT]:
            await self.drop(chat_id)
