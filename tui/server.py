"""Asks the server on behalf of the chat: for answers, and about models."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

from gptoss_local.api.client import AsyncClient
from gptoss_local.api.gptoss import Inspection, ModelFit, ModelFits, ServerStatus, TokenCount
from gptoss_local.api.models import (
    InstalledModel,
    InstalledModels,
    JobStatus,
    RunningModel,
    RunningModels,
)
from gptoss_local.base.errors import GptOssError, ServerUnavailableError, UnauthorizedError
from gptoss_local.base.events import ChatEvent


class ChatServer:
    """The server for the chat; `start` starts it unless it runs, and is None if it cannot."""

    def __init__(self, source: AsyncClient, start: Callable[[], object] | None = None) -> None:
        self._source = source
        self._start = start

    async def stream_chat(
        self, body: dict[str, Any], begun: Callable[[str], None] = lambda _id: None
    ) -> AsyncGenerator[ChatEvent, None]:
        """Yield the events of `/api/chat`; closing the generator stops the answer.

        Restarts a server that was stopped. `begun` gets the id of the answer, for `answer_now`.
        """
        body = body | {"return_progress": True, "return_tokens": True}
        start = self._start
        while True:
            try:
                async with aclosing(self._source.stream_chat(body, begun)) as events:
                    async for event in events:
                        start = None
                        yield event
                return
            except ServerUnavailableError:
                if start is None:
                    raise
            await asyncio.to_thread(start)
            start = None

    async def answer_now(self, answer_id: str) -> None:
        body = {"id": answer_id}
        await self._source.post("/api/gptoss/answer-now", body, JobStatus)

    async def installed_models(self) -> list[InstalledModel]:
        return (await self._source.get("/api/tags", InstalledModels)).models

    async def running_models(self) -> list[RunningModel]:
        return (await self._source.get("/api/ps", RunningModels)).models

    async def loaded(self, name: str) -> RunningModel | None:
        return next((model for model in await self.running_models() if model.name == name), None)

    def pull(self, name: str) -> AsyncGenerator[JobStatus, None]:
        """Fetch a model and yield the progress; closing the generator ends it."""
        return self._source.stream("/api/pull", {"model": name}, JobStatus)

    async def status(self) -> ServerStatus | None:
        """Return the state of the server's machine; None for a key without that right."""
        try:
            return await self._source.get("/api/gptoss/status", ServerStatus)
        except UnauthorizedError:
            return None

    async def fits(self, n_ctx: int = 0) -> dict[str, ModelFit]:
        """Return by name where each model would go with this context; 0 leaves it to the plan."""
        query = f"?n_ctx={n_ctx}" if n_ctx else ""
        try:
            found = await self._source.get(f"/api/gptoss/fits{query}", ModelFits)
        except UnauthorizedError:
            return {}
        return {fit.name: fit for fit in found.models}

    async def n_tokens(self, text: str) -> int | None:
        """Return how many tokens a text takes; None: the server does not say."""
        try:
            return (await self._source.post("/api/gptoss/tokens", {"text": text}, TokenCount)).n
        except GptOssError:
            return None

    async def inspect(self, body: dict[str, Any]) -> Inspection:
        return await self._source.post("/api/gptoss/inspect", body, Inspection)
