"""The npm packages `ollama` and `openai` against a real server: tests/npm, run by node.

Their files are fetched once, by hand, with `npm ci --prefix tests/npm`.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import RunningServer

FOLDER = Path(__file__).parents[1] / "npm"
NODE = shutil.which("node")


@pytest.mark.nightly
@pytest.mark.skipif(NODE is None, reason="needs node")
@pytest.mark.skipif(
    not (FOLDER / "node_modules").is_dir(), reason="first: npm ci --prefix tests/npm"
)
@pytest.mark.parametrize("sdk", ["ollama", "openai"])
def test_sdk(own_server: RunningServer, sdk: str) -> None:
    """On a server of its own, as an abort is seen in the number of running sequences."""
    result = subprocess.run(
        [str(NODE), "--test", "--test-reporter=tap", f"{sdk}.test.mjs"],
        cwd=FOLDER,
        env=os.environ | {"GPTOSS_TEST_URL": own_server.url, "NO_PROXY": "*"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "# fail 0" in result.stdout
    assert "# skipped 0" in result.stdout
    assert "# tests 0" not in result.stdout
