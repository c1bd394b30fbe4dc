"""Asks the server on behalf of the chat: for answers, and what is loaded."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, NamedTuple, Protocol

from gptoss_local.api.client import AsyncClient
from gptoss_local.errors import ServerUnavailableError, UnauthorizedError


class Gpu(NamedTuple):
    """A GPU of the server's machine, at this moment."""

    used_bytes: int
    total_bytes: int


class LoadedModel(NamedTuple):
    """A model in memory.

    Attributes:
        vram_bytes: Of `size_bytes`, what is on the GPU.
    """

    n_ctx: int
    size_bytes: int
    vram_bytes: int

    @property
    def gpu_share(self) -> float:
        """Return the share of its bytes on the GPU, 0.0 .. 1.0."""
        return self.vram_bytes / max(1, self.size_bytes)


class ModelLoad(NamedTuple):
    """The progress of a load: what the server does, bytes read, and all bytes."""

    status: str
    n_read_bytes: int
    n_bytes: int


class MachineState(NamedTuple):
    """The server's machine at a moment.

    Attributes:
        gpus: Those that models can use; none where it computes on the CPU.
        loading: Models on their way into memory, by name.
    """

    gpus: list[Gpu]
    loading: dict[str, ModelLoad]


class AnswerSource(Protocol):
    """The source of frames, such as `AsyncClient`."""

    def stream_chat(self, body: dict[str, Any]) -> AsyncGenerator[dict[str, Any], None]: ...

    def stream(self, path: str, body: dict[str, Any]) -> AsyncGenerator[dict[str, Any], None]: ...

    async def get(self, path: str) -> dict[str, Any]: ...

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]: ...


class ChatServer:
    """The server as the chat sees it.

    Args:
        source: Where answers come from.
        start: Starts the server unless it runs, and waits for it; None: it cannot be started.
    """

    def __init__(
        self, source: AnswerSource | AsyncClient, start: Callable[[], object] | None = None
    ) -> None:
        self._source = source
        self._start = start

    async def stream_chat(self, body: dict[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """The frames of `/api/chat`; closing the generator stops the answer.

        A server that was stopped since the chat began is started again.
        """
        body = body | {"return_progress": True, "return_tokens": True}
        n_frames = 0
        try:
            async with aclosing(self._source.stream_chat(body)) as frames:
                async for frame in frames:
                    n_frames += 1
                    yield frame
            return
        except ServerUnavailableError:
            if self._start is None or n_frames:
                raise
        await asyncio.to_thread(self._start)
        async with aclosing(self._source.stream_chat(body)) as frames:
            async for frame in frames:
                yield frame

    async def installed_models(self) -> list[dict[str, Any]]:
        """Return the models as `/api/tags` has them."""
        models: list[dict[str, Any]] = (await self._source.get("/api/tags"))["models"]
        return models

    async def running_models(self) -> list[dict[str, Any]]:
        """Return the models as `/api/ps` has them."""
        models: list[dict[str, Any]] = (await self._source.get("/api/ps"))["models"]
        return models

    def pull(self, name: str) -> AsyncGenerator[dict[str, Any], None]:
        """Fetch a model and yield the frames of `/api/pull`; closing the generator ends it."""
        return self._source.stream("/api/pull", {"model": name})

    async def look(self) -> MachineState:
        """Return what the server's machine does now."""
        try:
            found = await self._source.get("/api/gptoss/status")
        except UnauthorizedError:  # a user's key has the models alone
            return MachineState([], {})
        gpus = [
            Gpu(gpu["total_bytes"] - gpu["free_bytes"], gpu["total_bytes"])
            for gpu in found.get("gpus", ())
        ]
        loads = {
            load["model"]: ModelLoad(load["status"], load["completed"], load["total"])
            for load in found.get("loading", ())
        }
        return MachineState(gpus, loads)

    async def fits(self, n_ctx: int = 0) -> dict[str, dict[str, Any]]:
        """Return by name where each model would go with this context; 0 leaves it to the plan."""
        query = f"?n_ctx={n_ctx}" if n_ctx else ""
        try:
            models = (await self._source.get(f"/api/gptoss/fits{query}"))["models"]
        except UnauthorizedError:
            return {}
        return {model["name"]: model for model in models}

    async def inspect(self, body: dict[str, Any]) -> dict[str, Any]:
        """A conversation in harmony's messages and tokens, as `/api/gptoss/inspect` has it."""
        return await self._source.post("/api/gptoss/inspect", body)

    async def loaded(self, name: str) -> LoadedModel | None:
        """Facts of a model in memory; None if it is not loaded."""
        for model in await self.running_models():
            if model["name"] == name:
                return LoadedModel(model["context_length"], model["size"], model["size_vram"])
        return None
