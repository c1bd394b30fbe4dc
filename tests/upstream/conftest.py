"""A real engine with nano, and upstreams with stand-ins over it as servers."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from gptoss_local.engine.client import EngineClient
from gptoss_local.harmony import Vocabulary
from gptoss_local.models.catalog import UpstreamAddress
from gptoss_local.runner.upstream.client import Upstream
from tests.engine.run import load_of
from tests.upstream.stand_in import StandIn, serving


@pytest.fixture(scope="session", autouse=True)
def no_proxy() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        yield


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(nano_gguf: Path) -> AsyncIterator[EngineClient]:
    client = await EngineClient.start(load_of(nano_gguf, n_ctx=8192))
    yield client
    await client.close()


Connect = Callable[..., Any]


@pytest.fixture
def upstream_to(vocabulary: Vocabulary, nano_gguf: Path) -> Connect:
    """Returns a context manager: an upstream with these stand-ins as addresses."""

    @asynccontextmanager
    async def connect(*stand_ins: StandIn | str, **options: Any) -> AsyncIterator[Upstream]:
        urls = tuple(each if isinstance(each, str) else each.url for each in stand_ins)
        kinds = [each.kind for each in stand_ins if isinstance(each, StandIn)]
        options = {"kind": (kinds or ["vllm"])[0], "model": "served", "n_ctx": 4096} | options
        address = UpstreamAddress(urls=urls, **options)
        upstream = Upstream("far", address, vocabulary, nano_gguf)
        try:
            yield upstream
        finally:
            await upstream.close()

    return connect


@pytest_asyncio.fixture(loop_scope="module")
async def stand_in(engine: EngineClient, vocabulary: Vocabulary) -> AsyncIterator[StandIn]:
    async with serving(StandIn("vllm", engine, vocabulary)) as running:
        yield running


@pytest.fixture
def far(engine: EngineClient, vocabulary: Vocabulary, upstream_to: Connect) -> Connect:
    """Returns a context manager: a stand-in of a kind, and an upstream that asks it."""

    @asynccontextmanager
    async def connect(
        kind: str = "vllm", *others: StandIn, n_ctx: int = 4096, **fields: Any
    ) -> AsyncIterator[tuple[StandIn, Upstream]]:
        async with (
            serving(StandIn(kind, engine, vocabulary, **fields)) as stand_in,
            upstream_to(stand_in, *others, n_ctx=n_ctx) as upstream,
        ):
            yield stand_in, upstream

    return connect
