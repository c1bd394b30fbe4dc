"""A record of engines that ended unasked, so that `gptoss doctor` can say when and why."""

import time
from contextlib import suppress
from pathlib import Path

import msgspec

from gptoss_local.base.errors import GptOssError, UsageError
from gptoss_local.base.settings import Settings
from gptoss_local.base.whole_file import write_whole

_N_KEPT = 100


class Loss(msgspec.Struct, frozen=True):
    """An engine process that ended unasked, at `at_s` on the wall clock."""

    at_s: float
    model: str
    message: str


def record(settings: Settings, model: str, error: GptOssError) -> None:
    losses = [*read(settings), Loss(time.time(), model, error.message)]
    with suppress(OSError, UsageError):  # a full disk
        write_whole(_path(settings), msgspec.json.encode(losses[-_N_KEPT:]).decode())


def read(settings: Settings) -> list[Loss]:
    with suppress(OSError, msgspec.DecodeError):
        return msgspec.json.decode(_path(settings).read_bytes(), type=list[Loss])
    return []


def _path(settings: Settings) -> Path:
    return settings.log_dir / "lost-engines.json"
