"""Compressed request bodies over a real socket: whole, cut, in many frames, and bombs."""

import gzip
import itertools
import json
import random
import sys
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from gptoss_local.base.errors import RequestTooLargeError, UsageError
from gptoss_local.server.body import BodyDecoder
from tests.server.test_limits import PATHS, message_of

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

PACK: dict[str, Callable[[bytes], bytes]] = {"zstd": zstd.compress, "gzip": gzip.compress}
ENCODINGS = pytest.mark.parametrize("encoding", PACK)
BODY = json.dumps({"model": "nano"}).encode()
MIB = 1 << 20
SKIPPABLE = bytes.fromhex("502a4d18") + (5).to_bytes(4, "little") + b"notes"


def post(http: httpx.Client, content: Any, encoding: str, path: str = "/api/show") -> Any:
    return http.post(path, content=content, headers={"content-encoding": encoding})


@ENCODINGS
def test_read_as_if_plain(http: httpx.Client, encoding: str) -> None:
    pack = PACK[encoding]
    plain = http.post("/api/show", content=BODY)
    assert post(http, pack(BODY), encoding).json() == plain.json()
    assert post(http, pack(BODY), encoding.upper()).status_code == 200
    two_frames = pack(BODY[:5]) + pack(b"") + pack(BODY[5:])
    assert post(http, two_frames, encoding).json() == plain.json()
    byte_by_byte = (bytes([byte]) for byte in two_frames)
    assert post(http, byte_by_byte, encoding).json() == plain.json()
    assert "missing request body" in post(http, pack(b""), encoding).text
    assert post(http, BODY, "identity").json() == plain.json()
    if encoding == "zstd":  # there are frames that hold no data
        assert post(http, SKIPPABLE + pack(BODY) + SKIPPABLE, encoding).json() == plain.json()


def test_bombs_are_refused(http: httpx.Client) -> None:
    for (encoding, pack), path in itertools.product(PACK.items(), ("/v1/messages", "/api/chat")):
        bomb = pack(b" " * (40 * MIB))
        assert len(bomb) < MIB
        for data in (bomb, pack(b" " * (20 * MIB)) * 2):
            reply = post(http, data, encoding, path)
            assert reply.status_code == 413
            assert "larger than 32 MiB" in message_of(reply, path)


@pytest.mark.quick
@ENCODINGS
def test_a_bomb_is_not_unpacked_to_its_end(encoding: str) -> None:
    """The bound holds while it is unpacked, whatever a frame says of its size."""
    decoder = BodyDecoder(encoding, MIB)
    made: list[bytes] = []
    with pytest.raises(RequestTooLargeError):
        made.extend(decoder.feed(PACK[encoding](b" " * (8 * MIB))))
    assert sum(map(len, made)) == MIB
    exact = BodyDecoder(encoding, MIB)
    assert b"".join(exact.feed(PACK[encoding](b" " * MIB))) == b" " * MIB
    exact.finish()


@pytest.mark.quick
@ENCODINGS
def test_pieces_are_the_whole(encoding: str) -> None:
    """Of data that cannot be compressed, too, in several frames and however it arrives."""
    plain = random.Random(1).randbytes(3 * MIB // 4) + b"x" * (MIB // 4)
    packed = PACK[encoding](plain[: MIB // 2]) + PACK[encoding](plain[MIB // 2 :])
    for size in (100, 70_000, len(packed)):
        decoder = BodyDecoder(encoding, MIB)
        arrived = (packed[i : i + size] for i in range(0, len(packed), size))
        assert b"".join(piece for each in arrived for piece in decoder.feed(each)) == plain
        decoder.finish()


@ENCODINGS
def test_frames_without_content_are_bounded(http: httpx.Client, encoding: str) -> None:
    reply = post(http, PACK[encoding](b"") * 100_000, encoding)
    assert (reply.status_code, "more than 1000 frames" in reply.text) == (400, True)
    decoder = BodyDecoder(encoding, MIB)
    with pytest.raises(RequestTooLargeError):  # as it arrives, too
        list(decoder.feed(bytes(MIB + 1)))


@pytest.mark.parametrize(("path", "encoding"), [*zip(PATHS, ["zstd", "gzip"] * 3, strict=False)])
def test_broken_data(http: httpx.Client, path: str, encoding: str) -> None:
    packed = PACK[encoding](BODY * 100)
    flipped = packed[:-3] + bytes([packed[-3] ^ 1]) + packed[-2:]
    cases = {"cut": packed[:-1], "plain": BODY, "rest": packed + b"x", "headless": packed[1:]}
    for name, data in (cases | ({"flipped": flipped} if encoding == "gzip" else {})).items():
        reply = post(http, data, encoding, path)
        assert reply.status_code == 400, name
        assert f"failed to decompress {encoding} body" in message_of(reply, path), name


@pytest.mark.quick
@ENCODINGS
def test_every_cut_is_seen(encoding: str) -> None:
    packed = PACK[encoding](BODY)
    for n_bytes in range(1, len(packed)):
        decoder = BodyDecoder(encoding, MIB)
        list(decoder.feed(packed[:n_bytes]))
        with pytest.raises(UsageError, match="ends too early"):
            decoder.finish()


def test_unknown_encodings(http: httpx.Client) -> None:
    for encoding, path in itertools.product(("br", "gzip, zstd"), PATHS):
        reply = post(http, BODY, encoding, path)
        assert reply.status_code == 415
        assert f"'{encoding}' are not supported" in message_of(reply, path)
        if path.startswith("/v1/"):
            assert reply.json()["error"]["type"] == "invalid_request_error"
