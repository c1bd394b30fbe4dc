"""Grammars that fail or take long disturb nobody else."""

import threading
from concurrent.futures import Future
from pathlib import Path

import numpy as np
import pytest

from gptoss_local.engine.llama import Model
from gptoss_local.engine.protocol import Failed
from gptoss_local.engine.worker.sampling.mask import Mask, MaskCompiler
from tests.engine.run import Prompt, running
from tests.engine.test_mask import FREE, HELLO, matching, reason


@pytest.mark.parametrize(
    ("grammar", "message"),
    [
        ("start: nothing", "nothing"),
        (matching("(a"), "unclosed"),
        ('{"grammars": 5}', "integer `5`"),
    ],
)
def test_a_bad_grammar_fails_its_request_alone(
    model: Model, masks: MaskCompiler, prompt: Prompt, grammar: str, message: str
) -> None:
    with running(model, masks) as run:
        run.add(0, prompt(HELLO))
        run.add(1, prompt(HELLO), grammar=grammar)
        run.finish()
        failed = run.ends[1]
        assert isinstance(failed, Failed)
        assert failed.error == "UsageError"
        assert message in failed.message
        assert reason(run, 0) == "stop"


def test_a_matcher_that_gives_up_fails_its_request_alone(
    model: Model, masks: MaskCompiler, prompt: Prompt, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(model, masks) as run:
        monkeypatch.setattr(Mask, "allowed", lambda _: np.array([], np.intp))
        run.add(0, prompt(HELLO))
        run.add(1, prompt(HELLO), grammar=matching("[0-9]+"))
        run.finish()
        assert isinstance(run.ends[1], Failed)
        assert reason(run, 0) == "stop"


@pytest.mark.parametrize("tokens", [["\N{EURO SIGN}"], ["a", "b"]])
def test_a_foreign_vocabulary_fails_its_request_alone(
    model: Model,
    nano_gguf: Path,
    prompt: Prompt,
    monkeypatch: pytest.MonkeyPatch,
    tokens: list[str],
) -> None:
    monkeypatch.setattr("gptoss_local.engine.worker.sampling.mask.read_tokens", lambda _: tokens)
    with running(model, MaskCompiler(nano_gguf)) as run:
        run.add(0, prompt(HELLO))
        run.add(1, prompt(HELLO), grammar=FREE)
        run.finish()
        failed = run.ends[1]
        assert isinstance(failed, Failed)
        assert "vocabulary" in failed.message
        assert reason(run, 0) == "stop"


class SlowCompiler(MaskCompiler):
    """Compiles when it is told to."""

    def __init__(self, model_path: Path) -> None:
        super().__init__(model_path)
        self.may_go = threading.Event()

    def compile(self, grammar: str) -> Future[Mask]:
        self._thread.submit(self.may_go.wait)
        return super().compile(grammar)


def test_streams_run_while_a_grammar_is_compiled(
    model: Model, nano_gguf: Path, prompt: Prompt
) -> None:
    compiler = SlowCompiler(nano_gguf)
    with running(model, compiler) as run:
        run.add(1, prompt(HELLO), grammar=matching("[0-9]"))
        run.add(2, prompt(HELLO), grammar=matching("[0-9]"))
        run.add(0, prompt(HELLO))
        while 0 not in run.ends:
            run.step()
        assert run.engine.stats().n_waiting == 2
        run.cancel(2)
        assert (run.engine.stats().n_waiting, reason(run, 2)) == (1, "cancelled")
        run.step()
        compiler.may_go.set()
        run.finish()
        assert len(run.tokens[1]) == 2
        assert not run.tokens[2]
