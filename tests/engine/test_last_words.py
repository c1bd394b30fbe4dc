"""An engine process that cannot start, or must not continue, says why."""

import asyncio
import textwrap
from pathlib import Path

import pytest

from gptoss_local.base.errors import ComputeError, EngineCrashedError, EngineError, ModelLoadError
from gptoss_local.base.types import SamplingParams
from gptoss_local.engine.client import EngineClient
from tests.engine.run import asked, load_of

ENDLESS = [200006, 1428, 200008, 3417, 591, 220, 16, 316, 220, 7467, 200007, 200006, 173781]
HOT = SamplingParams(temperature=1, top_k=40)  # drawn by llama.cpp's own loop


@pytest.fixture
def fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with an expression that replaces the tenth draw of an engine process."""
    file = tmp_path / "fault"
    (tmp_path / "sitecustomize.py").write_text(
        textwrap.dedent(f"""
        import os, sys, time
        if "gptoss_local.engine.worker.start" in sys.orig_argv:
            import llama_cpp
            draw, drawn = llama_cpp.llama_sampler_sample, []
            def faulty(*arguments):
                drawn.append(draw(*arguments))
                if len(drawn) < 10 or not os.path.exists({str(file)!r}):
                    return drawn[-1]
                return eval(open({str(file)!r}).read())
            llama_cpp.llama_sampler_sample = faulty
        """)
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return file


async def test_a_broken_library(
    bare_gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "libllama.so").write_bytes(b"\x7fELF, but not really")
    monkeypatch.setenv("LLAMA_CPP_LIB_PATH", str(tmp_path))
    words = r"llama\.cpp cannot be loaded: .*libllama\.so"
    with pytest.raises(ModelLoadError, match=words) as raised:
        await EngineClient.start(load_of(bare_gguf))
    assert "gptoss doctor" in raised.value.hint


async def drawn(engine: EngineClient) -> int:
    n = 0
    async for _ in engine.generate(asked(ENDLESS, HOT, stop_tokens=[], max_tokens=200)):
        n += 1
    return n


async def test_a_token_that_does_not_exist(bare_gguf: Path, fault: Path) -> None:
    """All sequences end with the error, and so does the process."""
    fault.write_text("907321963")
    engine = await EngineClient.start(load_of(bare_gguf))
    crashes: list[BaseException] = []
    engine.on_crash = crashes.append
    ends = await asyncio.gather(*(drawn(engine) for _ in range(3)), return_exceptions=True)
    assert [type(end) for end in ends] == [ComputeError] * 3
    assert "it drew token 907321963, which does not exist" in str(ends[0])
    assert len(crashes) == 1
    assert not engine.is_alive
    await asyncio.wait_for(engine.close(), 5)
    with pytest.raises(ComputeError):
        await drawn(engine)


@pytest.mark.timing
@pytest.mark.parametrize(
    ("what", "error", "words"),
    [
        ("1 / 0", EngineError, "the model runner failed: ZeroDivisionError"),
        ("os.abort()", EngineCrashedError, r"\(signal 6\): Fatal Python error: Aborted"),
        (
            "[os.write(2, b'x\\nggml.c:9: GGML_ASSERT(n > 0) failed\\ny\\n'), os._exit(3)]",
            EngineCrashedError,
            r"\(exit code 3\): ggml\.c:9: GGML_ASSERT\(n > 0\) failed$",
        ),
        (  # word by word, as Python writes where each thread was
            "[os.write(2, b'n > 0 failed\\n')]"
            " + [(os.write(2, b'at '), time.sleep(0.0005)) for _ in range(300)]"
            " + [os.abort()]",
            EngineCrashedError,
            r"\(signal 6\): n > 0 failed$",
        ),
        (  # a system takes seconds to store the memory of a large process
            "[os.write(2, b'illegal\\n'), time.sleep(0.6), os.kill(os.getpid(), 3), time.sleep(9)]",
            EngineCrashedError,
            r"\(signal 3\): illegal$",
        ),
    ],
)
async def test_other_ends(
    bare_gguf: Path,
    fault: Path,
    monkeypatch: pytest.MonkeyPatch,
    what: str,
    error: type[EngineError],
    words: str,
) -> None:
    monkeypatch.setattr("gptoss_local.engine.client._RECENT_S", 0.5)
    fault.write_text(what)
    engine = await EngineClient.start(load_of(bare_gguf))
    with pytest.raises(error, match=words):
        await drawn(engine)
    await asyncio.wait_for(engine.close(), 5)
