"""Every error a user can meet, with what to print, what to do, an exit code and an HTTP status.

Foreign exceptions are translated once, where the foreign library is called, with `raise ... from`.
"""

import errno
from typing import ClassVar


class GptOssError(Exception):
    """Base of the tree: a `message` without advice, and a `hint`, ideally a command, or empty."""

    exit_code: ClassVar[int] = 1
    http_status: ClassVar[int] = 500

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(GptOssError):  # the request itself is wrong
    exit_code = 2
    http_status = 400


class PathNotFoundError(UsageError):
    http_status = 404


class MethodNotAllowedError(UsageError):
    http_status = 405


class RequestTimeoutError(UsageError):
    http_status = 408


class UnauthorizedError(UsageError):  # the API key is missing or wrong
    http_status = 401


class ForbiddenError(UsageError):  # a page of another origin, or another account
    http_status = 403


class AnsweringError(UsageError):  # a turn that is still being written
    http_status = 409


class RequestTooLargeError(UsageError):
    http_status = 413


class UnsupportedEncodingError(UsageError):  # the body is compressed in a way we do not read
    http_status = 415


class ThreadUnsupportedError(UsageError):  # the server is to hold a conversation
    pass


class ThreadNotFoundError(UsageError):  # one that the server does not hold
    http_status = 404


class ModelNotFoundError(GptOssError):
    exit_code = 3
    http_status = 404


class ResponseNotFoundError(GptOssError):  # an answer that is not remembered
    exit_code = 3
    http_status = 404


class ToolError(GptOssError):  # where tools come from does not answer
    http_status = 502


class DownloadError(GptOssError):  # the hub or the network fails
    exit_code = 4
    http_status = 502


class DiskError(GptOssError):  # the disk fails, or may not be written
    exit_code = 4


class DiskFullError(DiskError):
    http_status = 507


class DoesNotFitError(GptOssError):  # the memory, or a wish for it
    exit_code = 5
    http_status = 507


class ConvertError(GptOssError):  # the checkpoint cannot become a GGUF
    exit_code = 6
    http_status = 422


class ServerUnavailableError(GptOssError):  # no server answers, or it cannot start
    exit_code = 7
    http_status = 503


class ServerBusyError(ServerUnavailableError):  # too many requests wait already
    pass


class RateLimitError(ServerUnavailableError):
    """An API key is over its limit; the next request is admitted after `retry_after_s` seconds."""

    http_status = 429

    def __init__(self, message: str, *, hint: str = "", retry_after_s: int = 1) -> None:
        super().__init__(message, hint=hint)
        self.retry_after_s = retry_after_s


class ContextOverflowError(GptOssError):
    """A prompt, or a prompt and its answer, are longer than the context.

    `n_prompt`: its tokens, None if work on it has begun. `n_ctx`: tokens loaded. `n_ctx_max`: the
    model's limit.
    """

    exit_code = 8
    http_status = 400

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        n_prompt: int | None = None,
        n_ctx: int = 0,
        n_ctx_max: int = 0,
    ) -> None:
        super().__init__(message, hint=hint)
        self.n_prompt, self.n_ctx, self.n_ctx_max = n_prompt, n_ctx, n_ctx_max


class VerifyError(GptOssError):  # a GGUF is damaged or wrong
    exit_code = 11
    http_status = 422


class HistoryError(GptOssError):  # the file of chats cannot be used
    exit_code = 12


class HistoryLockedError(HistoryError):  # it has a passphrase, which was not given
    exit_code = 13
    http_status = 423


class ChatNotFoundError(HistoryError):  # a chat or turn that is not there
    exit_code = 3
    http_status = 404


class BrokenCallError(GptOssError):
    """A call breaks off after a part of it was streamed."""

    http_status = 502


class EngineError(GptOssError):  # llama.cpp refused something
    exit_code = 10


class ModelLoadError(EngineError):
    pass


class ComputeError(EngineError):
    """The device failed or computed nonsense, and cannot be trusted any more."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        hint = hint or (
            "The next request starts it again. If this repeats, `gptoss doctor` says what to do; "
            "report it with the server log (`gptoss logs`)."
        )
        super().__init__(message, hint=hint)


class UpstreamError(EngineError):
    """An engine elsewhere does not answer, or answers nonsense."""

    http_status = 502


class EngineCrashedError(EngineError):
    """The engine process died; `was_killed`: by the system, mostly for lack of RAM."""

    def __init__(self, message: str, *, hint: str = "", was_killed: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.was_killed = was_killed


def disk_error(message: str, error: OSError, *, hint: str) -> DiskError:
    """Make the error: a class of its own for a full disk, a hint for a file in use on Windows."""
    hint = f"{in_use(error)}{hint}"
    is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return (DiskFullError if is_full else DiskError)(message, hint=hint)


def in_use(error: OSError) -> str:
    """Return a hint if a program on Windows may have the file open; empty otherwise."""
    is_in_use = getattr(error, "winerror", None) in (5, 32, 1224)  # also access denied: it says so
    return "Close what uses the file; `gptoss stop` unloads models. " if is_in_use else ""


def error_by_name(name: str, message: str, *, hint: str = "") -> GptOssError:
    """Rebuild an error that came over a pipe or a socket; an unknown name gives the base class."""
    found = globals().get(name)
    if not isinstance(found, type) or not issubclass(found, GptOssError):
        found = GptOssError
    return found(message, hint=hint)
