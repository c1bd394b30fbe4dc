"""Reads other servers' answers up to a limit: a compressed kilobyte may hold a gigabyte."""

import zlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx2

UNCOMPRESSED = {"Accept-Encoding": "identity"}
_GZIP = ("gzip", "x-gzip")


def bound(response: httpx2.Response, n_most: float, *, unzips: bool = False) -> None:
    """Raise DecodingError while an answer is read if it is longer than `n_most` or compressed.

    With `unzips`, gzip is unpacked, and `n_most` is a whole number of unpacked bytes.
    """
    response.stream = _Bounded(response, n_most, unzips)


class _Bounded(httpx2.SyncByteStream, httpx2.AsyncByteStream):
    def __init__(self, response: httpx2.Response, n_most: float, unzips: bool) -> None:
        self._response, self._n_left, self._n_most = response, n_most, n_most
        self._stream: Any = response.stream
        self._unzip = None
        if unzips and response.headers.get("content-encoding", "").lower() in _GZIP:
            del response.headers["content-encoding"]
            self._unzip = zlib.decompressobj(16 + zlib.MAX_WBITS)

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
        why = ""
        if self._response.headers.get("content-encoding", "identity").lower() != "identity":
            why = "it is compressed, which was not asked for"
        elif self._unzip:
            try:
                piece = self._unzip.decompress(piece, int(self._n_left) + 1)
            except zlib.error as error:
                why = f"it is compressed badly: {error}"
        self._n_left -= len(piece)
        if self._n_left < 0 and not why:
            why = f"it has more than {self._n_most / 2**20:g} MiB"
        if why:
            raise httpx2.DecodingError(why, request=self._response.request)
        return piece
