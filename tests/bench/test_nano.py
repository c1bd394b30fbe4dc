"""The recipe of nano runs: its words are counted, one step is taken, its weights are packed."""

import subprocess
import sys
from pathlib import Path

import pytest

from gptoss_local.models.nano.compact import CompactModel, load_compact

ROOT = Path(__file__).parents[2]


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_one_step_makes_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_COMPILE_DISABLE", "1")  # compiling takes longer than the step
    used, out, packed = tmp_path / "used.json", tmp_path / "out", tmp_path / "nano.xz"

    def run(module: str, *arguments: object) -> None:
        command = [sys.executable, "-m", f"bench.nano.{module}", *map(str, arguments)]
        subprocess.run(command, cwd=ROOT, check=True, timeout=600)

    run("train.vocabulary", used, "--documents", 8, "--n-used", 3000)
    options = ("--steps", 1, "--rows", 1, "--tokens", 1024, "--workers", 1)
    run("train", "--used", used, "--out", out, *options)
    run("export", out, packed)
    made, shipped = CompactModel(packed.read_bytes()), load_compact()
    assert made.config == shipped.config
    assert {n: made.shape(n) for n in made.names} == {n: shipped.shape(n) for n in shipped.names}
