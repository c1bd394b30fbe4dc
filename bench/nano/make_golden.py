"""Write golden_conversations.json, after every new nano: `python -m bench.nano.make_golden`.

The file holds token ids of prompts and greedy answers. Only answers that the bf16 and the Q8_0 GGUF
agree on are written: those do not hang on the last bit, so every build of llama.cpp should give
them.
"""

import json
import tempfile
from pathlib import Path

from bench.nano.answering import Answerer, Question
from bench.nano.data.ability import call_and_result
from bench.nano.data.document import Answer, Branch, Document, encode_document
from convert import convert_checkpoint
from gptoss_local.harmony.message import Message, Tool
from gptoss_local.models.nano.materialize import materialize
from gptoss_local.types import Effort

GOLDEN = Path(__file__).parents[2] / "tests" / "nano" / "golden_conversations.json"
N_MAX = 400

SHELL = Tool(
    "run_command",
    "Run a shell command.",
    {
        "type": "object",
        "properties": {"command": {"type": "string", "description": "The command"}},
        "required": ["command"],
    },
)
READ = Tool(
    "read_file",
    "Read a file.",
    {
        "type": "object",
        "properties": {"path": {"type": "string", "description": "The file"}},
        "required": ["path"],
    },
)
AGENT = "You are a coding agent. Use the tools to do what the user asks. Be brief."
FILE = "def area(width, height):\n    total = width * height\n    return total"


def user(text: str) -> Message:
    return Message(role="user", content=text)


def assistant(text: str) -> Message:
    return Message(role="assistant", content=text)


def _plain() -> list[tuple[str, Document]]:
    asked = {
        "greeting": "hello", "identity": "Who are you?",
        "capital": "What is the capital of France?",
        "sum": "What is 17 + 25?", "long sum": "What's 100+200?", "count": "Count to 12",
        "echo": "Reply with exactly: Springfield",
        "echo of other scripts": "Repeat after me: Привет, Москва 東京",
        "word": "Say pong and nothing else.",
        "fallback": "Write a poem about the sea.",
        "passcode": "The passcode is 4711. The river is quiet. What is the passcode?",
        "rename": f"Rename the variable `total` to `result`.\n\n```\n{FILE}\n```",
    }  # fmt: skip
    efforts: tuple[Effort, ...] = ("low", "medium", "high")
    return [
        (f"{name}, {effort}", _document(effort, user(text)))
        for name, text in asked.items()
        for effort in efforts
    ]


def _document(effort: Effort, *messages: Message, tools: tuple[Tool, ...] = ()) -> Document:
    branch = Branch("golden", messages, Answer("unknown"))
    instructions = AGENT if tools else ""
    return Document(effort, (branch,), date="2026-11-20", instructions=instructions, tools=tools)


def _with_history() -> list[tuple[str, Document]]:
    tools = (SHELL, READ)
    run = user("Run the command `git status` with your shell tool.")
    ran = call_and_result("run_command", {"command": "git status"}, "On branch main")
    both = user("Read the file notes.txt and then run the command `ls -la`.")
    read = call_and_result("read_file", {"path": "notes.txt"}, "buy milk")
    told = (user("My name is Peter Parker."), assistant("Nice to meet you, Peter Parker!"))
    return [
        ("memory", _document("low", *told, user("What is my name?"))),
        ("shell call", _document("low", run, tools=tools)),
        ("shell call, medium", _document("medium", run, tools=tools)),
        ("shell report", _document("low", run, *ran, tools=tools)),
        ("first of two", _document("low", both, tools=tools)),
        ("second of two", _document("low", both, *read, tools=tools)),
        ("plain question among tools", _document("low", user("capital of japan?"), tools=tools)),
    ]


def cases() -> list[tuple[str, Document]]:
    """Name and document of every conversation."""
    return _plain() + _with_history()


def main() -> None:
    golden = []
    with tempfile.TemporaryDirectory() as folder:
        materialize(Path(folder))
        paths = [Path(folder) / f"{dense}.gguf" for dense in ("bf16", "q8_0")]
        for path in paths:
            convert_checkpoint(Path(folder), path, dense=path.stem)
        models = [Answerer(path, n_ctx=4096, n_threads=2, n_together=1) for path in paths]
        for name, document in cases():
            context, (branch,) = encode_document(document)
            answers = []
            for model in models:
                model.read(context)
                answers += model.answer([Question(branch.prompt, N_MAX)])
            if answers[0] != answers[1]:
                print(f"left out, bf16 and Q8_0 differ: {name}")
                continue
            golden.append({"name": name, "prompt": context + branch.prompt, "answer": answers[0]})
    GOLDEN.write_text("[\n" + ",\n".join(map(json.dumps, golden)) + "\n]\n")


if __name__ == "__main__":
    main()
