"""`gptoss eval smoke`: puts the questions of smoke.jsonl to a model by `inspect_ai`."""

import json
import random
import re
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import msgspec
from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import (
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageUser,
    ContentReasoning,
    ResponseSchema,
)
from inspect_ai.scorer import Score, Scorer, Target, accuracy, grouped, scorer, stderr
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.tool import Tool, ToolDef
from inspect_ai.util import JSONSchema

_TAG = re.compile(r"<\|\w+\|>|\bassistant(?:analysis|commentary|final)\b|^analysis\b(?!\s+of\b)")
_CITIES = ("Lisbon", "Oslo", "Nairobi", "Quito", "Hanoi", "Tunis", "Lima", "Dublin", "Riga")
_NAMES = ("Maria", "Kenji", "Olga", "Tom", "Fatima", "Lucas", "Irene", "Noah", "Priya", "Hugo")
_THINGS = ("river", "copper", "lantern", "meadow", "violin", "harbor", "pepper", "saddle", "marble")
_MIN_QUOTED = 40  # characters of the reasoning that no answer repeats by chance


class _Question(msgspec.Struct):
    """A line of smoke.jsonl; the categories take turns there, so that `--limit` is fair to all."""

    id: str
    category: str
    check: str  # a name of `_CHECKS`, which compares the answers with `target`
    turns: list[str]  # messages of the user
    target: Any = None
    system: str = ""
    tools: list[str] = []
    schema: dict[str, Any] | None = None
    n_sentences: int = 0  # of the text that hides the passcode `target`, about 13 tokens each


def _weather(city: str) -> str:
    return json.dumps({"city": city, "temperature": 5 + sum(map(ord, city)) % 25})


def _time(city: str) -> str:
    return json.dumps({"city": city, "time": f"{sum(map(ord, city)) % 24:02}:40"})


def _convert(amount: float, source: str, target: str) -> str:
    rate = 1 + sum(map(ord, source + target)) % 9
    return json.dumps({"amount": round(amount * rate, 2), "currency": target})


def _user(name: str) -> str:
    return json.dumps({"user_id": 1000 + sum(map(ord, name))})


def _balance(user_id: int) -> str:
    return json.dumps({"user_id": user_id, "balance": user_id % 97 + 100})


_CITY = {"city": "Name of the city"}
_TOOLS: dict[str, tuple[Callable[..., str], str, dict[str, str]]] = {
    "get_weather": (_weather, "Get the current weather in a city", _CITY),
    "get_time": (_time, "Get the local time of a city", _CITY),
    "convert_currency": (
        _convert,
        "Convert money between currencies",
        {"amount": "The amount", "source": "Currency of the amount", "target": "Wanted currency"},
    ),
    "find_user": (_user, "Find the id of a user", {"name": "The user's name"}),
    "get_balance": (_balance, "Get the balance of an account", {"user_id": "The user's id"}),
}


@task
def smoke() -> Task:
    lines = Path(__file__).with_name("smoke.jsonl").read_bytes()
    questions = msgspec.json.Decoder(_Question).decode_lines(lines)
    return Task(
        dataset=MemoryDataset([_sample(question) for question in questions]),
        solver=_converse(),
        scorer=_judge(),
    )


def _sample(question: _Question) -> Sample:
    turns = question.turns
    if question.n_sentences:
        turns = [f"{_haystack(question.n_sentences, question.target[0])}\n\n{turns[0]}"]
    metadata = msgspec.to_builtins(question) | {"turns": turns}
    target = json.dumps(question.target)
    return Sample(id=question.id, input=turns[0], target=target, metadata=metadata)


def _haystack(n_sentences: int, passcode: str) -> str:
    rng = random.Random(passcode)
    text = []
    for _ in range(n_sentences):
        a, b = rng.sample(_THINGS, 2)
        text.append(f"In {rng.choice(_CITIES)}, {rng.choice(_NAMES)} saw a {a} next to a {b}.")
    text.insert(rng.randrange(len(text)), f"The passcode is {passcode}.")
    return " ".join(text)


@solver
def _converse() -> Solver:
    async def solve(state: TaskState, generate: Generate) -> TaskState:
        about = state.metadata
        state.tools = [_tool(name) for name in about["tools"]]
        if about["system"]:
            state.messages.insert(0, ChatMessageSystem(content=about["system"]))
        more: dict[str, Any] = {}
        if schema := about["schema"]:
            more["response_schema"] = ResponseSchema(
                name="record", json_schema=JSONSchema.model_validate(schema), strict=True
            )
        for number, turn in enumerate(about["turns"]):
            if number:
                state.messages.append(ChatMessageUser(content=turn))
            state = await generate(state, tool_calls="loop", **more)
        return state

    return solve


def _tool(name: str) -> Tool:
    function, about, parameters = _TOOLS[name]

    @wraps(function)
    async def execute(**arguments: Any) -> str:
        return function(**arguments)

    return ToolDef(execute, name=name, description=about, parameters=parameters).as_tool()


@scorer(metrics=[accuracy(), stderr(), grouped(accuracy(), "category")])
def _judge() -> Scorer:
    async def score(state: TaskState, target: Target) -> Score:
        answers = [m for m in state.messages if isinstance(m, ChatMessageAssistant)]
        wrong = _leak(answers) or _CHECKS[state.metadata["check"]](answers, json.loads(target.text))
        text = state.output.completion
        return Score(value=0 if wrong else 1, answer=text, explanation=wrong or "right")

    return score


def _leak(answers: list[ChatMessageAssistant]) -> str:
    for answer in answers:
        if found := _TAG.search(answer.text.strip()):
            return f"{found[0]!r} of the harmony format is in the answer"
        parts = answer.content if isinstance(answer.content, list) else []
        for part in parts:
            thought = part.reasoning.strip() if isinstance(part, ContentReasoning) else ""
            if len(thought) >= _MIN_QUOTED and thought in answer.text:
                return "the analysis is in the answer"
    return ""


def _is_number(answers: list[ChatMessageAssistant], wanted: int) -> str:
    numbers = re.findall(r"-?\d+", answers[-1].text.replace(",", ""))
    return "" if numbers and int(numbers[-1]) == wanted else f"wanted {wanted}"


def _is_text(answers: list[ChatMessageAssistant], wanted: str) -> str:
    return "" if answers[-1].text.strip() == wanted else f"wanted {wanted!r}"


def _is_json(answers: list[ChatMessageAssistant], wanted: dict[str, Any]) -> str:
    try:
        found = json.loads(answers[-1].text)
    except ValueError:
        return "not JSON"
    return "" if found == wanted else f"wanted {json.dumps(wanted)}"


def _is_called(answers: list[ChatMessageAssistant], wanted: list[Any]) -> str:
    called = [[call.function, call.arguments] for a in answers for call in a.tool_calls or ()]
    if sorted(map(repr, called)) != sorted(map(repr, wanted)):
        return f"wanted the calls {json.dumps(wanted)}, not {json.dumps(called)}"
    function, arguments = wanted[-1]
    result = json.loads(_TOOLS[function][0](**arguments))
    value = result["amount"] if "amount" in result else [*result.values()][-1]
    return _contains(answers, [str(value).removesuffix(".0")])


def _contains(answers: list[ChatMessageAssistant], wanted: list[str]) -> str:
    text = answers[-1].text.lower().replace(",", "")
    missing = [each for each in wanted if each.lower() not in text]
    return f"{', '.join(missing)} is not in the answer" if missing else ""


def _ends(answers: list[ChatMessageAssistant], wanted: str) -> str:
    texts = (a.text.lower().rstrip(" .!\"'*") for a in answers)
    return "" if all(text.endswith(wanted) for text in texts) else f"wanted {wanted!r} at each end"


_CHECKS: dict[str, Callable[[list[ChatMessageAssistant], Any], str]] = {
    "number": _is_number,
    "text": _is_text,
    "json": _is_json,
    "calls": _is_called,
    "contains": _contains,
    "ends": _ends,
    "none": lambda answers, wanted: "",
}
