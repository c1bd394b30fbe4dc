"""Errors, settings, types and formats, for every room; and msgspec, made safe for threads."""

import functools
import threading
from collections.abc import Callable
from typing import Any

import msgspec

_LOCK = threading.RLock()
_known: set[Any] = set()  # types that have been decoded


def _alone_at_first(decode: Callable[..., Any]) -> Callable[..., Any]:
    """Let one thread at a time be the first to decode a type.

    msgspec 0.22 crashes if two threads are first: one finds structs whose fields have no types yet.
    """

    @functools.wraps(decode)
    def run(data: Any, type: Any = Any, **options: Any) -> Any:
        if type in _known:
            return decode(data, type=type, **options)
        with _LOCK:
            result = decode(data, type=type, **options)
        _known.add(type)
        return result

    return run


for module, name in ((msgspec, "convert"), (msgspec.json, "decode"), (msgspec.msgpack, "decode")):
    setattr(module, name, _alone_at_first(getattr(module, name)))
