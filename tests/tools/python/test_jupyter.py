"""The tool `python` in a real kernel of the user's, where jupyter_client and ipykernel are."""

import asyncio
from pathlib import Path

import pytest

from gptoss_local.base.errors import UsageError
from gptoss_local.talk.tools.python import Python
from gptoss_local.talk.tools.python.driver import NO_OUTPUT
from tests.tools.python.conftest import MakePython, children
from tests.tools.python.test_sandbox import LOST, run, until

pytest.importorskip("jupyter_client", reason="jupyter_client is not installed")
pytest.importorskip("ipykernel", reason="ipykernel is not installed")


@pytest.fixture
def python(make_python: MakePython, monkeypatch: pytest.MonkeyPatch) -> Python:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    return make_python(python_tool="jupyter:python3", python_timeout_s=5.0)


async def test_state_and_results(python: Python, tmp_path: Path) -> None:
    assert await run(python, "import statistics, os\nx = [1, 2]") == f"ok: {NO_OUTPUT}"
    assert await run(python, "print('a')\nstatistics.mean(x)") == "ok: a\n1.5\n"
    assert await run(python, "os.getcwd()") == f"ok: {str(tmp_path)!r}\n"
    assert await run(python, "os.environ.get('HF_TOKEN')") == f"ok: {NO_OUTPUT}"
    failed = await run(python, "1 / 0")
    assert failed.startswith("error: ---")
    assert "ZeroDivisionError: division by zero" in failed
    assert "\x1b" not in failed
    picture = (
        "class A:\n    def _repr_png_(self): return b'x'\n    def __repr__(self): return 'A'\nA()"
    )
    assert await run(python, picture) == "ok: A\n(image/png is not shown)\n"
    await python.new_chat()
    assert children() == []
    assert "NameError" in await run(python, "x")


async def test_time_and_death(python: Python) -> None:
    await run(python, "x = 1")
    late = await run(python, "print('started')\nwhile True: pass")
    assert late.startswith("error: started\n")
    assert late.endswith("Error: The code took longer than 5 s. Variables are kept.")
    assert await run(python, "x") == "ok: 1\n"
    died = await run(python, "import os; os._exit(3)")
    assert died == f"error: Error: The kernel died. {LOST}"
    assert "NameError" in await run(python, "x")


async def test_cancelling(python: Python) -> None:
    await run(python, "x = 1")
    call = asyncio.create_task(run(python, "while True: pass"))
    await asyncio.sleep(0.2)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await until(lambda: not children())
    assert await run(python, "1") == f"ok: (The call before was stopped. {LOST})\n1\n"


async def test_no_such_kernel(make_python: MakePython) -> None:
    python = make_python(python_tool="jupyter:nowhere")
    with pytest.raises(UsageError, match=r"no Jupyter kernel 'nowhere'; there are: .*python3"):
        await python.run({"code": "1"})
