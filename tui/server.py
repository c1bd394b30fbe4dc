"""What the chat asks of the server: answers, and what is loaded."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, NamedTuple, Protocol

from gptoss_local.client import AsyncClient
from gptoss_local.errors import ServerUnavailableError


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
        """Of its bytes, what is on the GPU, 0.0 .. 1.0."""
        return self.vram_bytes / max(1, self.size_bytes)


class ModelLoad(NamedTuple):
    """How far a model is on its way into memory: what the server does, bytes read, and all."""

    status: str
    n_read_bytes: int
    n_bytes: int


class Look(NamedTuple):
    """The server's machine at a moment.

    Attributes:
        gpus: Those that models can use; none where it computes on the CPU.
        loading: Models on their way into memory, by name.
    """

    gpus: list[Gpu]
    loading: dict[str, ModelLoad]


class PromptSize(NamedTuple):
    """Tokens: of a prompt, of the context it went to, of the largest one the model can have."""

    n_prompt: int
    n_ctx: int
    n_ctx_max: int


class AnswerSource(Protocol):
    """Where frames come from; `AsyncClient` is one."""

    def stream_chat(self, body: dict[str, Any]) -> AsyncGenerator[dict[str, Any], None]: ...

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
        """As `/api/tags` has them."""
        models: list[dict[str, Any]] = (await self._source.get("/api/tags"))["models"]
        return models

    async def running_models(self) -> list[dict[str, Any]]:
        """As `/api/ps` has them."""
        models: list[dict[str, Any]] = (await self._source.get("/api/ps"))["models"]
        return models

    async def look(self) -> Look:
        """What the server's machine does now."""
        found = await self._source.get("/api/gptoss/status")
        gpus = [
            Gpu(gpu["total_bytes"] - gpu["free_bytes"], gpu["total_bytes"])
            for gpu in found.get("gpus", ())
        ]
        loads = {
            load["model"]: ModelLoad(load["status"], load["completed"], load["total"])
            for load in found.get("loading", ())
        }
        return Look(gpus, loads)

    async def fits(self, n_ctx: int = 0) -> dict[str, dict[str, Any]]:
        """By name, where each model would go, with so much context; 0 leaves that to the plan."""
        query = f"?n_ctx={n_ctx}" if n_ctx else ""
        models = (await self._source.get(f"/api/gptoss/fits{query}"))["models"]
        return {model["name"]: model for model in models}

    async def inspect(self, body: dict[str, Any]) -> dict[str, Any]:
        """A conversation in harmony's messages and tokens, as `/api/gptoss/inspect` has it."""
        return await self._source.post("/api/gptoss/inspect", body)

    async def prompt_size(self, body: dict[str, Any]) -> PromptSize:
        """How long the prompt of a request is, and what the model could hold."""
        name = body["model"]
        counted, loaded = await self.inspect(body), await self.loaded(name)
        tags = {tag["name"]: tag for tag in await self.installed_models()}
        n_ctx_max = tags.get(name, {"details": {}})["details"].get("context_length", 0)
        return PromptSize(counted["n_tokens"], loaded.n_ctx if loaded else 0, n_ctx_max)

    async def loaded(self, name: str) -> LoadedModel | None:
        """Facts of a model in memory; None if it is not loaded."""
        for model in await self.running_models():
            if model["name"] == name:
                return LoadedModel(model["context_length"], model["size"], model["size_vram"])
        return None
