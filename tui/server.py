"""What the chat asks of the server: answers, and what is loaded."""

from collections.abc import AsyncGenerator
from typing import Any, NamedTuple, Protocol

from gptoss_local.client import AsyncClient


class LoadedModel(NamedTuple):
    """A model in memory.

    Attributes:
        vram_bytes: Of `size_bytes`, what is on the GPU.
    """

    n_ctx: int
    size_bytes: int
    vram_bytes: int


class AnswerSource(Protocol):
    """Where frames come from; `AsyncClient` is one."""

    def stream_chat(self, body: dict[str, Any]) -> AsyncGenerator[dict[str, Any], None]: ...

    async def get(self, path: str) -> dict[str, Any]: ...


class ChatServer:
    """The server as the chat sees it."""

    def __init__(self, source: AnswerSource | AsyncClient) -> None:
        self._source = source

    def stream_chat(self, body: dict[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """The frames of `/api/chat`; closing the generator stops the answer."""
        return self._source.stream_chat(body)

    async def installed_models(self) -> list[dict[str, Any]]:
        """As `/api/tags` has them."""
        models: list[dict[str, Any]] = (await self._source.get("/api/tags"))["models"]
        return models

    async def running_models(self) -> list[dict[str, Any]]:
        """As `/api/ps` has them."""
        models: list[dict[str, Any]] = (await self._source.get("/api/ps"))["models"]
        return models

    async def loaded(self, name: str) -> LoadedModel | None:
        """Facts of a model in memory; None if it is not loaded."""
        for model in await self.running_models():
            if model["name"] == name:
                return LoadedModel(model["context_length"], model["size"], model["size_vram"])
        return None
