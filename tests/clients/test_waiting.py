"""Programs that give up when no event comes for 300 s, against a model that needs 400 s.

It needs 400 s to read the prompt and as long to write a call, as a large model on a slow machine
does. All programs wait side by side: about 15 minutes.
"""

import os
import subprocess
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from gptoss_local.harmony import Vocabulary
from tests.clients.test_clients import FOLDER, NPM, PROGRAMS, WRITTEN
from tests.scripted_engine import Script, answer, calls, run_scripted_server

WAIT_S = 400.0
FILE = "\n".join(f"line {n}" for n in range(200))
OLLAMA_JS = """
import { Ollama } from "ollama";
const ollama = new Ollama({ host: process.env.SERVER });
const messages = [{ role: "user", content: "Say hi" }];
const parameters = { type: "object", properties: { text: { type: "string" } } };
const tools = [{ type: "function", function: { name: "write", description: "", parameters } }];
for (;;) {
  const call = [];
  for await (const part of await ollama.chat({ model: "nano", messages, tools, stream: true })) {
    process.stdout.write(part.message.content);
    call.push(...(part.message.tool_calls ?? []));
  }
  if (!call.length) break;
  messages.push({ role: "assistant", content: "", tool_calls: call });
  messages.push({ role: "tool", tool_name: "write", content: "written" });
}
"""
RUNS: dict[str, tuple[list[str], str, dict[str, Any]]] = {
    "cline": (
        ["cline", "-P", "ollama", "-m", "nano", "Say hi"],
        "run_commands",
        {"commands": [f"cat <<'X'\n{FILE}\nX"]},
    ),
    "codex": (
        [
            "codex",
            "exec",
            "--oss",
            "--local-provider",
            "ollama",
            "-m",
            "nano",
            "--skip-git-repo-check",
            "Hello",
        ],
        "exec_command",
        {"cmd": f"cat <<'X'\n{FILE}\nX"},
    ),
    "qwen": (["qwen", "--auth-type", "openai", "-p", "Say hi"], "glob", {"pattern": FILE}),
    "ollama-js": (["node", "--input-type=module", "--eval", OLLAMA_JS], "write", {"text": FILE}),
}
"""By client: its command, a tool that it offers, and arguments of the tool."""


@pytest.fixture
def urls(nano_home: Path, vocabulary: Vocabulary) -> Iterator[dict[str, str]]:
    with ExitStack() as servers:
        found = {}
        for client, (_, tool, arguments) in RUNS.items():
            script = Script(vocabulary)
            call = calls(tool, arguments, prefill_s=WAIT_S, pauses={100: WAIT_S})
            script.otherwise(call, answer("It is done."))
            found[client] = servers.enter_context(run_scripted_server(nano_home, script)).url
        yield found


@pytest.mark.nightly
@pytest.mark.timeout(3 * WAIT_S + 200)
@pytest.mark.skipif(not (FOLDER / "node_modules").is_dir(), reason="see test_clients.py")
@pytest.mark.skipif(not (NPM / "node_modules").is_dir(), reason="first: npm ci --prefix tests/npm")
def test_programs_wait_for_the_first_token_and_for_a_call(
    urls: dict[str, str], tmp_path: Path
) -> None:
    def run(client: str) -> "subprocess.CompletedProcess[str]":
        home, url = tmp_path / client, urls[client]
        (home / "work").mkdir(parents=True)
        for block in WRITTEN:
            file = home / block.notes["file"].removeprefix("~/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block.text.replace("http://127.0.0.1:11434", url))
        return subprocess.run(
            RUNS[client][0],
            cwd=NPM if client == "ollama-js" else home / "work",
            env={
                "HOME": str(home),
                "PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}",
                "NO_PROXY": "*",
                "TERM": "dumb",
                "SERVER": url,
                "CODEX_OSS_BASE_URL": f"{url}/v1",
                "OPENAI_BASE_URL": f"{url}/v1",
                "OPENAI_API_KEY": "none",
                "OPENAI_MODEL": "nano",
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )

    with ThreadPoolExecutor() as threads:
        runs: dict[str, Future[Any]] = {client: threads.submit(run, client) for client in RUNS}
    for client, future in runs.items():
        done = future.result()
        assert done.returncode == 0, (client, done.stdout, done.stderr)
        assert "It is done." in done.stdout, (client, done.stdout, done.stderr)
