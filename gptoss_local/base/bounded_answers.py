"""Reads other servers' answers up to a limit, uncompressed: a kilobyte may hold a gigabyte."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx2

UNCOMPRESSED = {"Accept-Encoding": "identity"}


def bound(response: httpx2.Response, n_most: float) -> None:
    """Raise DecodingError while an answer is read if it is compressed or longer than `n_most`."""
    response.stream = _Bounded(response, n_most)


class _Bounded(httpx2.SyncByteStream, httpx2.AsyncByteStream):
    def __init__(self, response: httpx2.Response, n_most: float) -> None:
        self._response, self._n_left, self._n_most = response, n_most, n_most
        self._stream: Any = response.stream

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._stream:
            yield self._checked(piece)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._stream:
            yield self._checked(piece)

    def close(self) -> None:
        self._stream.close()

    async def aclose(self) -> None:
        await self._stream.aclose()

    def _checked(self, piece: bytes) -> bytes:
        self._n_left -= len(piece)
        why = f"it has more than {self._n_most / 2**20:g} MiB" if self._n_left < 0 else ""
        if self._response.headers.get("content-encoding", "identity").lower() != "identity":
            why = "it is compressed, which was not asked for"
        if why:
            raise httpx2.DecodingError(why, request=self._response.request)
        return piece
