"""Faults inside the engine process that a healthy model does not produce."""

import subprocess
import sys

import pytest

from gptoss_local.engine.engine import Engine
from gptoss_local.engine.protocol import Failed, Generate, Load, encode_frame
from gptoss_local.errors import ContextOverflowError, EngineError, GptOssError
from gptoss_local.types import SamplingParams


class FailingContext:
    """A context whose every decode fails."""

    n_ctx, n_batch = 4096, 512

    def __init__(self, error: GptOssError) -> None:
        self.error = error

    def remove(self, seq_id: int) -> None:
        pass

    def decode(self, tokens: list[int], *, position: int, seq_id: int) -> None:
        raise self.error


@pytest.mark.parametrize("error", [EngineError("broken"), ContextOverflowError("full")])
def test_failed_decode_ends_one_sequence_and_not_the_engine(error: GptOssError) -> None:
    engine = Engine(FailingContext(error))  # type: ignore[arg-type]
    for seq_id in (1, 2):
        request = Generate(seq_id=seq_id, prompt=[1], sampling=SamplingParams(), stop_tokens=[])
        engine.add_request(request)
    events = engine.step() + engine.step()
    assert [(e.seq_id, e.error, e.message) for e in events if isinstance(e, Failed)] == [
        (seq_id, type(error).__name__, error.message) for seq_id in (1, 2)
    ]
    assert not engine.has_work


def test_half_a_frame_ends_the_process() -> None:
    """As a server leaves it that is killed while it writes."""
    load = Load(model_path="x", n_ctx=1, n_threads_prefill=1, n_threads_decode=1)
    command = [sys.executable, "-m", "gptoss_local.engine.process"]
    done = subprocess.run(command, input=encode_frame(load)[:-3], capture_output=True, timeout=60)
    assert done.stdout == b""
