"""Documents whose developer message tells the schema of the answer, as the server renders it.

Tools may be declared beside it. Then what asks for an action is answered with a call, and what is
data, be it the user's or a tool's, in the format.
"""

import dataclasses
import json
from collections.abc import Callable, Sequence

from bench.nano.data import agent, functions
from bench.nano.data.agent import draw_toolset
from bench.nano.data.document import Branch, Document
from bench.nano.data.extract import Asked, draw_asked, draw_text, json_branch, schema_of
from bench.nano.data.source import Source
from bench.nano.data.tools import Toolset, call_and_result
from bench.nano.data.wording import phrase
from bench.nano.phrases import banks
from gptoss_local.base.types import Effort
from gptoss_local.harmony.message import JsonFormat

BANK = banks("response_format")


def _extract_format(source: Source, effort: Effort) -> Document:
    asked = draw_asked(source)
    branches = [_told(source, effort, asked) for _ in range(source.rng.randint(2, 6))]
    instructions = source.choice(BANK.INSTRUCTIONS)
    told = _format(source, asked)
    return Document(effort, tuple(branches), instructions=instructions, format=told)


def _tool_format(source: Source, effort: Effort) -> Document:
    asked, toolset, branches = draw_asked(source), _tools(source), list[Branch]()
    for _ in range(source.rng.randint(4, 10)):
        call = _call(source, effort, toolset)
        kind = source.rng.random()
        if call is None or kind < 0.35:
            # with tools, a prompt never opens the final channel
            told = _told(source, effort, asked)
            branches.append(dataclasses.replace(told, opens_final=False))
        elif kind < 0.5 and "two" not in call.skill:
            branches.append(_fetched(source, effort, asked, call))
        else:
            branches.append(call)
    instructions = source.choice((*BANK.INSTRUCTIONS, *BANK.TOOL_INSTRUCTIONS, ""))
    return Document(
        effort, tuple(branches), instructions=instructions, tools=toolset.tools,
        format=_format(source, asked),
    )  # fmt: skip


def _format(source: Source, asked: Sequence[Asked]) -> JsonFormat:
    name = source.choice(BANK.FORMAT_NAMES) if source.chance(0.7) else source.identifier()
    about = source.choice(BANK.DESCRIPTIONS) if source.chance(0.8) else ""
    return JsonFormat(schema_of(source, list(asked)), name, about)


def _told(source: Source, effort: Effort, asked: list[Asked]) -> Branch:
    text, values = draw_text(source, asked)
    content = phrase(source, BANK.FORMAT_ASKS, ask=False, text=text)
    return json_branch(source, effort, content, values)


def _fetched(source: Source, effort: Effort, asked: list[Asked], call: Branch) -> Branch:
    text, values = draw_text(source, asked)
    wanted, made = json_branch(source, effort, "", values), call.answer
    arguments = json.loads(made.text)
    done = call_and_result(made.call, arguments, text, reasoning=made.analysis)
    return Branch("extract", (*call.messages, *done), wanted.answer, is_json=True)


def _tools(source: Source) -> Toolset:
    if source.chance(0.3):
        return draw_toolset(source, source.rng.randint(1, 6))
    abilities = functions.draw_functions(source)
    return Toolset(tuple(a.tool for a in abilities), {a.role: a for a in abilities})


def _call(source: Source, effort: Effort, toolset: Toolset) -> Branch | None:
    skills = functions.BRANCHES | agent.BRANCHES
    for _ in range(8):
        branch = skills[source.choice(list(skills))](source, effort, toolset)
        if branch is not None and branch.answer.call:
            return branch
    return None


DOCUMENTS: dict[str, Callable[[Source, Effort], Document]] = {
    "extract_format": _extract_format,
    "tool_format": _tool_format,
}
