"""The examples in docs/api.md, run as they are written."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import RunningServer

PAGE = Path(__file__).parents[2] / "docs" / "api.md"


@pytest.mark.skipif(not shutil.which("curl"), reason="the examples use curl")
def test_examples(server: RunningServer) -> None:
    (script,) = re.findall(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    assert script.startswith("B=http://127.0.0.1:11434\n")
    script = script.replace("http://127.0.0.1:11434", server.url)
    script = script.replace("curl ", "curl --silent --show-error --fail --noproxy '*' ")
    result = subprocess.run(
        ["sh", "-ec", script], capture_output=True, text=True, timeout=120, check=False
    )
    assert result.returncode == 0, result.stderr
    for words in ("Paris", "17 + 25 = 42", "response.completed", "message_stop", '"input_tokens":'):
        assert words in result.stdout
