"""The tool `python` in its sandbox: outputs, errors and lifetimes."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from gptoss_local.base.errors import UsageError
from gptoss_local.base.settings import Settings
from gptoss_local.talk.tools import ToolSources
from gptoss_local.talk.tools.python import Python
from gptoss_local.talk.tools.python.driver import NO_OUTPUT, Output
from tests.tools.python.conftest import MakePython, children

LOST = "Python was restarted: variables, functions and imports of earlier calls are lost."


async def run(python: Python, code: str) -> str:
    result = await python.run({"code": code})
    return f"{'error' if result.is_error else 'ok'}: {result.text}"


async def until(condition: Callable[[], object], seconds: float = 30) -> None:
    end_s = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end_s
        await asyncio.sleep(0.02)


def is_running(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.status() != psutil.STATUS_ZOMBIE
    return False


async def test_state_and_output(make_python: MakePython) -> None:
    python = make_python()
    assert (
        await run(python, "import math\ndef f(x):\n    return x * 2\nx = 21") == f"ok: {NO_OUTPUT}"
    )
    assert await run(python, "print(f(x))") == "ok: 42\n"
    assert await run(python, "print('a', end='')\nmath.floor(2.5)") == "ok: a2\n"
    assert await run(python, "y = 5\ny; x") == "ok: 21\n"
    assert await run(python, "_ + 1") == "ok: 22\n"
    assert await run(python, "") == f"ok: {NO_OUTPUT}"


LAST = [
    ("x = [\n1,\n2]\nx", "[1, 2]"),
    ("max(\n3,\n    4\n)  # the largest\n\n", "4"),
    ("'a;b'", "'a;b'"),
    ("print('x;y'); 'a\\nb'", "x;y\n'a\\nb'"),
    ('"""a\nb"""', "'a\\nb'"),
    ("if True:\n    3", NO_OUTPUT),
    ("x = \\\n3", NO_OUTPUT),
    ("3;", NO_OUTPUT),
    ("3; # shown by no one", NO_OUTPUT),
    ("if True: 3; 4", NO_OUTPUT),
    ("if False:\n    3; 4", NO_OUTPUT),
    ("\f", NO_OUTPUT),
    ("\\\n#", NO_OUTPUT),
    ("None", NO_OUTPUT),
    ("# only a comment", NO_OUTPUT),
    ("s = '''\nx\n'''", NO_OUTPUT),
    ("def f():\n    return 1\n\nf()", "1"),
    ("async def f():\n    return 4\nawait f()", "4"),
    ("class A:\n    def __repr__(self):\n        return 'an A'\nA()", "an A"),
    ("f = lambda n: n\nf(\n5)", "5"),
    ("dict(\n_=7)", "{'_': 7}"),
]


async def test_a_last_expression_is_shown(make_python: MakePython) -> None:
    python = make_python()
    assert [(code, (await run(python, code)).rstrip("\n")) for code, _ in LAST] == [
        (code, f"ok: {shown}") for code, shown in LAST
    ]


async def test_errors_say_what_can_be_done(make_python: MakePython) -> None:
    python = make_python()
    assert await run(python, "x = 1\nprint(x)\ndef f():\n    return 1 / 0\nf()") == (
        "error: 1\nTraceback (most recent call last):\n"
        '  File "<python>", line 5, in <module>\n    f()\n    ~~~\n'
        '  File "<python>", line 4, in f\n    return 1 / 0\n           ~~~~~\n'
        "ZeroDivisionError: division by zero"
    )
    assert await run(python, "x") == "ok: 1\n", "an exception loses nothing"
    numpy = await run(python, "import numpy")
    assert "No module named 'numpy'" in numpy
    names = numpy.rpartition("modules only: ")[2].rstrip(".").split(", ")
    assert {"math", "json", "re", "datetime", "collections"} <= set(names)
    for name in names:
        assert await run(python, f"import {name}") == f"ok: {NO_OUTPUT}"
    assert "subset of Python" in await run(python, "def g():\n    yield 1")
    wrong = 'error: Traceback (most recent call last):\n  File "<python>", line 1\n    x = (\n'
    assert (await run(python, "x = (")).startswith(wrong)
    assert "no shell commands" in await run(python, "!pip install numpy")
    assert "no files, no network" in await run(python, "open('data.csv')")
    deep = await run(python, "def f(n):\n    return f(n + 1)\nf(0)")
    assert "Previous line repeated" in deep
    assert len(deep) < 1000
    two = "def f(n):\n    return g(n + 1)\ndef g(n):\n    return f(n + 1)\nf(0)"
    assert 3_000 < len(await run(python, two)) < 5_000


async def test_long_output_is_cut_in_the_middle(make_python: MakePython) -> None:
    text = await run(make_python(), "for i in range(100000):\n    print(i)")
    assert text.startswith("ok: 0\n1\n2\n")
    assert text.endswith("99998\n99999\n")
    assert "characters left out" in text
    assert 30_000 < len(text) <= 32 * 1024


def test_output_keeps_both_ends() -> None:
    whole = "".join(chr(65 + n % 26) for n in range(100))
    for size in (1, 3, 7, 50, 100):
        output = Output(10)
        for start in range(0, 100, size):
            output.write(whole[start : start + size])
        assert output.text() == f"{whole[:5]}\n[... 90 characters left out ...]\n{whole[-5:]}"
    output = Output(10)
    output.write("0123456789")
    assert output.text() == "0123456789"


async def test_a_call_that_takes_too_long(make_python: MakePython) -> None:
    """The event loop stays free meanwhile, however much it prints."""
    python = make_python(python_timeout_s=2.0)
    await run(python, "x = 1")
    late = await run(python, "print('started')\nwhile True:\n    pass")
    assert late == f"error: started\nError: The code took longer than 2 s. {LOST}"
    assert "NameError" in await run(python, "x")
    assert await run(python, "2") == "ok: 2\n", "the loss is told once"
    ticks = [0] * 3  # of three calls, as a busy machine may hold up one
    for i in range(3):
        call = asyncio.create_task(run(python, "while True:\n    print('x' * 100)"))
        while not call.done():
            await asyncio.sleep(0.01)
            ticks[i] += 1
        assert LOST in await call
    assert max(ticks) > 10


async def test_the_process_dies(make_python: MakePython) -> None:
    python = make_python()
    for which in ("monty", "python"):
        await run(python, "x = 1")
        call = asyncio.create_task(run(python, "while True:\n    pass"))
        await until(lambda which=which: [c for c in children() if which in c.name()])
        await asyncio.sleep(0.2)  # so that most often the code runs; it is right before, too
        next(c for c in children() if which in c.name()).kill()
        assert LOST in await asyncio.wait_for(call, 30)
        assert await run(python, "1 + 1") == "ok: 2\n"
    running = children()
    for child in running:  # between calls
        child.kill()
    await until(lambda: not any(map(is_running, running)))
    assert LOST in await run(python, "x")
    assert await run(python, "1 + 1") == "ok: 2\n"


@pytest.mark.timing
async def test_cancelling_stops_the_code(make_python: MakePython) -> None:
    python = make_python()
    for code in ("while True:\n    pass", "10 ** 10 ** 8", "import time\ntime.sleep(1000)"):
        await run(python, "x = 1")
        running = children()
        call = asyncio.create_task(run(python, code))
        await asyncio.sleep(0.1)
        call.cancel()
        start_s = time.monotonic()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert time.monotonic() - start_s < 2
        await until(lambda running=running: not any(map(is_running, running)))
        note = f"(The call before was stopped. {LOST})\n"
        assert await run(python, "1 + 1") == f"ok: {note}2\n"
        assert await run(python, "1 + 1") == "ok: 2\n"


async def test_a_chat_has_a_process_of_its_own(make_python: MakePython) -> None:
    python, other = make_python(), make_python()
    assert children() == [], "it starts with the first call"
    await run(python, "x = 1")
    assert "NameError" in await run(other, "x")
    await other.new_chat()
    assert await run(python, "x") == "ok: 1\n"
    assert len(children()) == 2
    await python.new_chat()
    assert children() == []
    assert "NameError" in await run(python, "x")
    await run(python, "n = 0")
    results = await asyncio.gather(*(run(python, "n += 1\nprint(n)") for _ in range(5)))
    assert results == [f"ok: {n}\n" for n in range(1, 6)], "calls wait for each other"
    await python.close()
    assert children() == []


async def test_an_idle_process_is_ended(make_python: MakePython) -> None:
    python = make_python(idle_s=0.3)
    await run(python, "x = 1")
    await until(lambda: not children())
    told = await run(python, "x")
    assert told.startswith(f"error: (There was no call for 0.005 minutes. {LOST})\nTraceback")


@pytest.mark.skipif(sys.platform == "win32", reason="kills by POSIX signals")
async def test_nothing_outlives_us(tmp_path: Path) -> None:
    """Our process is killed while code runs, so it can clean nothing up."""
    ours = tmp_path / "ours.py"
    ours.write_text(
        "import asyncio, pathlib, psutil\n"
        "from gptoss_local.base.settings import Settings\n"
        "from gptoss_local.talk.tools.python import Python\n"
        "async def main():\n"
        "    python = Python(Settings(), pathlib.Path())\n"
        "    await python.run({'code': '1'})\n"
        "    call = asyncio.create_task(python.run({'code': 'while True: pass'}))\n"
        "    await asyncio.sleep(0.3)\n"
        "    print(*[c.pid for c in psutil.Process().children(recursive=True)], flush=True)\n"
        "    await call\n"
        "asyncio.run(main())\n"
    )
    with subprocess.Popen(
        [sys.executable, str(ours)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        pids = [int(pid) for pid in process.stdout.readline().split()]
        running = [psutil.Process(pid) for pid in pids]
        assert len(running) == 2
        os.kill(process.pid, signal.SIGKILL)
    await until(lambda: not any(map(is_running, running)))


async def test_the_tool(tmp_path: Path) -> None:
    toolbox = ToolSources(Settings(enabled_tools="python"), tmp_path).toolbox()
    assert await toolbox.prepare() == []
    (declared,) = toolbox.declared()
    assert declared["function"].keys() == {"name", "description"}
    assert "time out after 30.0 seconds" in declared["function"]["description"]
    tool = toolbox.tool("python")
    assert tool is not None
    assert toolbox.needs_consent(tool)
    assert tool.about == "runs Python code in a sandbox without files and network"
    assert (await toolbox.run("python", {"code": "1 + 1"})).text == "2\n"
    assert (await toolbox.run("python", {"cod": "1"})).text == (
        "Error: code must be a string of Python code"
    )
    await toolbox.close()
    off = ToolSources(Settings(), tmp_path).toolbox()
    await off.prepare()
    assert off.tool("python") is None


@pytest.mark.parametrize("memory", ["nonsense", "256", "1MB"])
def test_memory_that_cannot_be(memory: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="python_memory"):
        Python(Settings(python_memory=memory), tmp_path)


async def test_memory_that_is_nearly_full(make_python: MakePython) -> None:
    """A call that exceeds the memory left says so, and the next one works."""
    python = make_python(python_memory="64MiB")
    await run(python, "a = ['x' * 1_000_000 for _ in range(58)]")
    for code in (f"x = '{'y' * 900_000}'", *["a.append('x' * 1_000_000)"] * 10):
        answer = await run(python, code)
        assert answer == f"ok: {NO_OUTPUT}" or "MemoryError" in answer or LOST in answer, answer
    assert "MemoryError" in answer
    await run(python, "a = None")
    assert await run(python, "1 + 1") == "ok: 2\n"
