"""Host memory for copies of the cache runs out: answers go on without these copies."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.engine.prefix_run import Run, on_disk, text
from tests.engine.smooth_model import TOLERANCE
from tests.engine.test_prefix_reuse import messages


@pytest.mark.parametrize("n_seq", [1, 3])
def test_no_memory_for_copies(
    start: Callable[..., Run],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    n_seq: int,
) -> None:
    """No checkpoint, no shared prefix, no file, and no answer is lost or another one."""

    def refuse(*_: object, **__: object) -> None:
        raise MemoryError

    run = start(prefixes=on_disk(tmp_path / "prefixes"), n_ctx=1024, n_seq=n_seq)
    conversation = messages(1, 4)
    one, other = [*conversation, *text(2, 20)], [*conversation, *text(3, 20)]
    with monkeypatch.context() as short:
        short.setattr(np, "empty", refuse)
        run.answer(conversation)
        run.ask(one)
        run.answer(other)
        assert run.engine.archive is not None
        assert not run.engine.archive.save_one()
        assert "no memory" in caplog.text
        assert len(run.engine._cache.checkpoints) == 0
    run.answer(messages(7, 4))
    run.engine.archive.close()
    assert run.engine.check() == []
    assert len(list(tmp_path.rglob("*.prefix"))) == 1
    assert max(run.errors()) <= TOLERANCE
