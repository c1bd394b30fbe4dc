"""The model that `gptoss run` takes if none is named, and its words about others."""

import os
import re
from pathlib import Path

import pytest

from gptoss_local.base.errors import UsageError
from gptoss_local.base.settings import Settings
from gptoss_local.cli._first_model import _words, chosen_model
from gptoss_local.machine.hardware import Machine
from gptoss_local.machine.plan.facts import ModelFacts
from gptoss_local.machine.plan.planner import make_plan
from gptoss_local.models.catalog import catalog
from gptoss_local.runner.fits import as_fit
from tests.plan.machines import LARGE, SMALL, gpu, machine
from tests.store.gguf_parts import as_ollama_wrote_it

pytestmark = pytest.mark.quick

TWO_CARDS = machine(gpu(12), gpu(12, index=1))
NOT_PINNED = machine(gpu(12), pinnable_bytes=0)
SMALL_RAM = machine(gpu(12), ram_gib=32)


@pytest.mark.parametrize(
    ("facts", "here", "text"),
    [
        (SMALL, TWO_CARDS, "tokens/s, all on the GPU"),
        (LARGE, NOT_PINNED, "tokens/s, partly on the GPU"),
        (LARGE, SMALL_RAM, "about 2.8 tokens/s"),
        (SMALL, machine(), "without a GPU"),
    ],
)
def test_where_it_would_be(facts: ModelFacts, here: Machine, text: str) -> None:
    (model, *_) = (model for model in catalog() if model.repo)
    assert text in _words(model, as_fit(model.name, make_plan(facts, here)))


def test_the_newest_that_can_be_loaded(
    tmp_path: Path, nano_gguf: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those that cannot be are named, with what to do."""
    settings = Settings(home=tmp_path)
    models = settings.models_dir
    models.mkdir()
    (models / "cut.gguf").write_bytes(nano_gguf.read_bytes()[:5000])
    as_ollama_wrote_it(nano_gguf, models / "theirs.gguf")
    with pytest.raises(UsageError, match="no model is on this machine"):
        chosen_model(settings)
    for name in ("older.gguf", "whole.gguf"):
        (models / name).write_bytes(nano_gguf.read_bytes())
    for age_s, name in enumerate(("theirs.gguf", "cut.gguf", "whole.gguf", "older.gguf")):
        os.utime(models / name, (10_000 - age_s, 10_000 - age_s))
    capsys.readouterr()
    assert chosen_model(settings) == "whole"
    said = capsys.readouterr()
    assert said.out == ""
    assert re.findall(r"gptoss: (.*)\n  (.*)\n", said.err) == [
        (
            "theirs is skipped, as it cannot be loaded: this is Ollama's own layout of gpt-oss, "
            "which llama.cpp cannot load",
            "Convert or fetch it again, or delete it: gptoss rm theirs",
        ),
        (
            "cut is skipped, as it cannot be loaded: supplied file was not in GGUF format",
            "Convert or fetch it again, or delete it: gptoss rm cut",
        ),
    ]
