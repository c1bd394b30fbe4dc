"""The tool `python` in a container.

A script takes the place of podman: it notes its arguments and runs the program that the image
would have, on this machine. What is between gptoss and podman is real, the isolation is not.
"""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from gptoss_local.errors import UsageError
from gptoss_local.tools.python import Python
from gptoss_local.tools.python.driver import NO_OUTPUT
from tests.tools.python.conftest import MakePython, children
from tests.tools.python.test_sandbox import LOST, is_running, run, until

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the script needs a POSIX shell")

PODMAN = """#!{python}
import json, os, sys
with open({log!r}, "a") as log:
    print(json.dumps(sys.argv[1:]), file=log)
if sys.argv[1] == "run":
    if "missing" in sys.argv:
        sys.exit("Error: missing: image not known")
    after = sys.argv[sys.argv.index("--entrypoint") + 3 :]
    os.execv({python!r}, [{python!r}, *after])
"""


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    podman = folder / "podman"
    log = tmp_path / "log"
    podman.write_text(PODMAN.format(python=sys.executable, log=str(log)))
    podman.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    return log


@pytest.fixture
def python(log: Path, make_python: MakePython) -> Python:
    return make_python(python_tool="container:python:3.12", python_timeout_s=2.0)


async def test_state_and_output(python: Python) -> None:
    assert await run(python, "import statistics\nx = [1, 2]") == f"ok: {NO_OUTPUT}"
    assert await run(python, "print('a')\nstatistics.mean(x)") == "ok: a\n1.5\n"
    assert await run(python, "_ * 2") == "ok: 3.0\n"
    assert await run(python, "import os; os.system('echo from a program')") == (
        "ok: from a program\n0\n"
    )
    failed = await run(python, "def f():\n    1 / 0\nf()")
    start = 'error: Traceback (most recent call last):\n  File "<python 5>", line 3'
    assert failed.startswith(start)
    assert failed.endswith("ZeroDivisionError: division by zero")
    assert "driver" not in failed
    assert "SyntaxError" in await run(python, "x = (")
    assert "EOFError" in await run(python, "input()")
    assert "SystemExit: 3" in await run(python, "import sys; sys.exit(3)")
    assert await run(python, "import sys; print('e', file=sys.stderr)") == "ok: e\n"
    assert await run(python, "x") == "ok: [1, 2]\n"
    assert "HF_TOKEN" not in await run(python, "dict(os.environ)")


async def test_long_output_is_cut_in_the_middle(python: Python) -> None:
    text = await run(python, "for i in range(200000): print(i)")
    assert text.startswith("ok: 0\n1\n")
    assert text.endswith("199999\n")
    assert 30_000 < len(text) <= 32 * 1024


async def test_code_that_does_not_end(python: Python) -> None:
    await run(python, "x = 1")
    late = await run(python, "print('started')\nwhile True: pass")
    assert late == f"error: started\nError: The code took longer than 2 s. {LOST}"
    assert "NameError" in await run(python, "x")
    flood = await run(python, "while True: print('x' * 1000)")
    assert "Error: The code " in flood
    assert len(flood) < 34_000
    assert await run(python, "1") == "ok: 1\n"


async def test_code_that_harms_its_own_process(python: Python) -> None:
    for code in ("import os; os._exit(3)", "import os; os.kill(os.getpid(), 9)"):
        assert f"died. {LOST}" in await run(python, code)
    closed = await run(python, "import os; os.close(1)")
    assert "The code closed its standard output" in closed
    # What it sends in the place of a result is only ever a text for the model.
    for frame in (r"\xff" * 9, r"\0\0\0\x017", r"\0\0\0\3[1]", r"\0\0\0\2[["):
        forged = (
            "import os\nfor fd in range(3, 20):\n    try:\n"
            f"        os.write(fd, b'{frame}')\n    except OSError:\n        pass"
        )
        assert LOST in await run(python, forged)
    assert await run(python, "1") == "ok: 1\n"


async def test_cancelling(python: Python, log: Path) -> None:
    await run(python, "x = 1")
    running = children()
    # A power holds the interpreter's lock, so that the process itself cannot end.
    call = asyncio.create_task(run(python, "10 ** 10 ** 8"))
    await asyncio.sleep(0.2)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await until(lambda: not any(map(is_running, running)))
    await until(lambda: '["rm", "--force", "gptoss-python-' in log.read_text())
    assert LOST in await run(python, "1")


async def test_the_arguments(python: Python, log: Path) -> None:
    await run(python, "1")
    line = log.read_text().splitlines()[0]
    for part in (
        '["run", "--rm", "--interactive", "--name", "gptoss-python-',
        '"--pull", "never", "--network", "none", "--read-only", ',
        '"--memory", "268435456", "--memory-swap", "268435456", "--pids-limit", "64", '
        '"--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--user", "65534"',
        '"--entrypoint", "python", "python:3.12", "-I", "-c", ',
    ):
        assert part in line


async def test_an_image_that_is_not_there(log: Path, make_python: MakePython) -> None:
    python = make_python(python_tool="container:missing")
    with pytest.raises(UsageError, match=r"does not start .* image not known"):
        await python.run({"code": "1"})


async def test_the_end_of_the_host_ends_it(python: Python) -> None:
    """A container is no child of ours, so it must notice that its standard input ends."""
    await run(python, "x = 1")
    call = asyncio.create_task(run(python, "while True: pass"))
    await asyncio.sleep(0.2)
    engine = python._engine
    assert engine is not None
    engine._process.stdin.close()  # type: ignore[attr-defined]
    assert LOST in await asyncio.wait_for(call, 1.5)
