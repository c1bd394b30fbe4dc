"""Every error a user can meet, with what to print, what to do, an exit code and an HTTP status.

    GptOssError                exit  1   HTTP 500
    ├── UsageError                   2        400   the request itself is wrong
    │   ├── PathNotFoundError        2        404
    │   ├── MethodNotAllowedError    2        405
    │   ├── RequestTimeoutError      2        408
    │   ├── UnauthorizedError        2        401   the API key is missing or wrong
    │   ├── ForbiddenError           2        403   a page of another origin, or another account
    │   ├── AnsweringError           2        409   a turn that is still being written
    │   ├── RequestTooLargeError     2        413
    │   ├── UnsupportedEncodingError 2        415   the body is compressed in a way we do not read
    │   ├── ThreadUnsupportedError   2        400   the server is to hold a conversation
    │   └── ThreadNotFoundError      2        404   one that the server does not hold
    ├── ModelNotFoundError           3        404
    ├── ResponseNotFoundError        3        404   an answer that is not remembered
    ├── DownloadError                4        502   the hub or the network fails
    ├── DiskError                    4        500   the disk fails, or may not be written
    │   └── DiskFullError            4        507
    ├── DoesNotFitError              5        507   the memory, or a wish for it
    ├── ConvertError                 6        422   the checkpoint cannot become a GGUF
    ├── ServerUnavailableError       7        503   no server answers, or it cannot start
    │   ├── ServerBusyError          7        503   too many requests wait already
    │   └── RateLimitError           7        429   an API key is over a limit of its own
    ├── ContextOverflowError         8        400   prompt + answer do not fit in n_ctx
    ├── VerifyError                 11        422   a GGUF is damaged or wrong
    ├── HistoryError                12        500   the file of chats cannot be used
    │   ├── HistoryLockedError      13        423   it has a passphrase, which was not given
    │   └── ChatNotFoundError        3        404   a chat or turn that is not there
    ├── BrokenCallError              1        502   a call that is being streamed breaks off
    ├── ToolError                    1        502   where tools come from does not answer
    └── EngineError                 10        500   llama.cpp refused something
        ├── ModelLoadError          10        500
        ├── ComputeError            10        500   the device fails, or its results are wrong
        ├── UpstreamError           10        502   an engine elsewhere fails
        └── EngineCrashedError      10        500   the engine process died

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


class UsageError(GptOssError):
    exit_code = 2
    http_status = 400


class PathNotFoundError(UsageError):
    http_status = 404


class MethodNotAllowedError(UsageError):
    http_status = 405


class RequestTimeoutError(UsageError):
    http_status = 408


class UnauthorizedError(UsageError):
    http_status = 401


class ForbiddenError(UsageError):
    http_status = 403


class AnsweringError(UsageError):
    http_status = 409


class RequestTooLargeError(UsageError):
    http_status = 413


class UnsupportedEncodingError(UsageError):
    http_status = 415


class ThreadUnsupportedError(UsageError):
    pass


class ThreadNotFoundError(UsageError):
    http_status = 404


class ModelNotFoundError(GptOssError):
    exit_code = 3
    http_status = 404


class ResponseNotFoundError(GptOssError):
    exit_code = 3
    http_status = 404


class ToolError(GptOssError):
    http_status = 502


class DownloadError(GptOssError):
    exit_code = 4
    http_status = 502


class DiskError(GptOssError):
    exit_code = 4


class DiskFullError(DiskError):
    http_status = 507


class DoesNotFitError(GptOssError):
    exit_code = 5
    http_status = 507


class ConvertError(GptOssError):
    exit_code = 6
    http_status = 422


class ServerUnavailableError(GptOssError):
    exit_code = 7
    http_status = 503


class ServerBusyError(ServerUnavailableError):
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


class VerifyError(GptOssError):
    exit_code = 11
    http_status = 422


class HistoryError(GptOssError):
    exit_code = 12


class HistoryLockedError(HistoryError):
    exit_code = 13
    http_status = 423


class ChatNotFoundError(HistoryError):
    exit_code = 3
    http_status = 404


class BrokenCallError(GptOssError):
    """A call breaks off after a part of it was streamed."""

    http_status = 502


class EngineError(GptOssError):
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
