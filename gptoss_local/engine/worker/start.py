"""Entry of the engine process: `python -m gptoss_local.engine.worker.start`."""

import contextlib
import faulthandler
import os
import signal
import sys
import traceback
from typing import BinaryIO

from gptoss_local.base.errors import EngineError, GptOssError
from gptoss_local.base.private import keep_memory_private
from gptoss_local.engine.protocol import failure, write_frames


def main() -> int:
    for number in (signal.SIGINT, getattr(signal, "SIGBREAK", signal.SIGINT)):
        signal.signal(number, signal.SIG_IGN)  # Ctrl-C in a shared terminal is the server's
    faulthandler.enable()
    keep_memory_private()
    events = _claim_stdout()
    try:
        from gptoss_local.engine.worker import process  # fails where llama.cpp's library does

        return process.run(events)
    except GptOssError as error:
        last = error
    except Exception as error:
        traceback.print_exc()
        last = EngineError(f"the model runner failed: {type(error).__name__}: {error}")
    with contextlib.suppress(OSError):  # the server is gone
        write_frames(events, [failure(last, None)])
    return last.exit_code


def _claim_stdout() -> BinaryIO:
    frames = os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return frames


if __name__ == "__main__":
    os._exit(main())  # the reader thread holds stdin, and a normal exit would trip over it
