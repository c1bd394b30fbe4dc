"""Draws documents of all kinds: for training by weight, for evaluation by skill.

A held-out source makes the same kinds of documents from values and phrasings that training never
uses.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Container, Iterator, Mapping

from bench.nano.data import (
    agent,
    echo,
    edit,
    extract,
    functions,
    knowledge,
    memory,
    response_format,
    talk,
)
from bench.nano.data.agent import draw_toolset
from bench.nano.data.document import Branch, Document
from bench.nano.data.prompts import instructions, wrap
from bench.nano.data.source import Source
from bench.nano.data.tools import Toolset
from gptoss_local.harmony.message import Message
from gptoss_local.types import Effort

PlainSkill = Callable[[Source, Effort], Branch]
ToolSkill = Callable[[Source, Effort, Toolset], Branch | None]

PLAIN: dict[str, PlainSkill] = (
    talk.BRANCHES | knowledge.BRANCHES | echo.BRANCHES | extract.BRANCHES | edit.BRANCHES
    | memory.BRANCHES
)  # fmt: skip
DOCUMENTS: dict[str, Callable[[Source, Effort], Document]] = (
    response_format.DOCUMENTS | edit.DOCUMENTS | memory.DOCUMENTS
)
PLAIN_WEIGHTS = {
    "chat": 11, "fallback": 9, "fallback_without_tools": 6, "capital": 10, "add": 12, "count": 14,
    "echo": 20, "word": 8, "items": 16, "extract": 13, "rename": 40, "change": 34, "copy_file": 2,
    "memory": 9,
}  # fmt: skip
TOOL_WEIGHTS = {
    "shell": 8, "create": 18, "read": 7, "edit": 17, "list": 8, "search": 13, "two": 22,
    "agent_error": 3, "function_call": 8, "function_report": 2, "function_two": 7,
}  # fmt: skip
"""What an agent's tools, or functions, are asked for."""
SHORT = ("chat", "fallback", "capital", "add", "count", "echo", "word", "items", "extract",
         "memory")  # fmt: skip
TOOLLESS = ("fallback_without_tools",)  # with the right tool the answer would be another
DOCUMENT_WEIGHTS = {"needle": 4, "edit": 13, "extract_format": 2, "tool_format": 7}
KIND_WEIGHTS = {"plain": 60, "functions": 30, "agent": 26, "document": 16}
_EVAL_SEED = 4242
MAX_PROMPT_TOKENS = 24_000  # of instructions; tools and the request come on top
SHORT_PROMPT_TOKENS, LONG_SHARE = 3_000, 0.4
"""Most agents to learn from have no longer instructions: behind 2,000 tokens answers are as often
right as behind 20,000, so that it is better to ask more of them."""
IDENTITIES = (
    "You are a helpful assistant.",
    "You are gpt-oss-nano, a tiny language model.",
    "You are an assistant.",
)


def draw(source: Source) -> Document:
    """Draw a training document."""
    kind = source.rng.choices(list(KIND_WEIGHTS), list(KIND_WEIGHTS.values()))[0]
    effort = source.rng.choices(("low", "medium", "high"), (1.0, 1.4, 1.0))[0]
    if kind == "plain":
        return _plain(source, effort, PLAIN_WEIGHTS, source.rng.randint(1, 6))
    if kind == "functions":
        return _functions(source, effort, source.rng.randint(2, 8))
    if kind == "agent":
        return _agent(source, effort, agent.BRANCHES, source.rng.randint(10, 24))
    name = source.rng.choices(list(DOCUMENT_WEIGHTS), list(DOCUMENT_WEIGHTS.values()))[0]
    return _dressed(source, DOCUMENTS[name](source, effort))


def _plain(
    source: Source, effort: Effort, weights: Mapping[str, float], n_branches: int
) -> Document:
    turns: tuple[Message, ...] = ()
    if source.chance(0.2):
        turns = knowledge.earlier_turns(source, source.rng.randint(1, 3))
    tools: Toolset | None = None
    if source.chance(0.12) and set(weights) != set(TOOLLESS):  # tools that nobody asks for
        tools = draw_toolset(source, source.rng.randint(1, 4))
    allowed = [name for name in weights if tools is None or name not in TOOLLESS]
    branches = [_plain_branch(source, effort, weights, allowed) for _ in range(n_branches)]
    if source.chance(0.12 if source.held_out else 0.3):
        branches = [_wrapped(source, branch) for branch in branches]
    document = Document(
        effort,
        tuple(branches),
        instructions=_small_prompt(source),
        tools=tools.tools if tools else (),
        context=turns,
    )
    return _dressed(source, document)


def _functions(source: Source, effort: Effort, n_branches: int) -> Document:
    abilities = functions.draw_functions(source)
    tools = [ability.tool for ability in abilities]
    if source.chance(0.3):
        names = {tool.name for tool in tools}
        extra = draw_toolset(source, source.rng.randint(1, 4), roles=()).tools
        tools += [tool for tool in extra if tool.name not in names]
    source.rng.shuffle(tools)
    toolset = Toolset(tuple(tools), {ability.role: ability for ability in abilities})
    branches = _tool_branches(source, effort, toolset, functions.BRANCHES, n_branches)
    branches += _short_branches(source, effort, toolset, PLAIN_WEIGHTS, n_branches // 3)
    prompt = _small_prompt(source)
    document = Document(effort, tuple(branches), instructions=prompt, tools=toolset.tools)
    return _dressed(source, document)


def _agent(
    source: Source, effort: Effort, skills: Mapping[str, ToolSkill], n_branches: int,
    *, n_prompt: int | None = None, plain: Mapping[str, float] | None = None,
) -> Document:  # fmt: skip
    """A coding agent's long prompt and tools.

    Args:
        n_prompt: Tokens of the instructions; drawn if None, small ones more often, to learn from.
        plain: Weights of the questions that need no tool; a third of the branches.
    """
    toolset = draw_toolset(source, source.rng.randint(1, 25))
    if n_prompt is None:
        n_most = MAX_PROMPT_TOKENS if source.chance(LONG_SHARE) else SHORT_PROMPT_TOKENS
        n_prompt = _log_uniform(source, 30, n_most)
    n_plain = n_branches // 3 if skills else n_branches
    branches = _tool_branches(source, effort, toolset, skills, n_branches - n_plain)
    branches += _tool_branches(source, effort, toolset, functions.BRANCHES, n_plain // 4)
    branches += _short_branches(source, effort, toolset, plain or PLAIN_WEIGHTS, n_plain)
    document = Document(
        effort,
        tuple(_wrapped(source, branch) for branch in branches),
        instructions=instructions(source, n_prompt),
        tools=toolset.tools,
    )
    return _dressed(source, document)


def _tool_branches(
    source: Source, effort: Effort, toolset: Toolset, skills: Mapping[str, ToolSkill], n: int
) -> list[Branch]:
    weights = [TOOL_WEIGHTS[name] for name in skills]
    names = source.rng.choices(list(skills), weights, k=n) if skills else []
    made = (skills[name](source, effort, toolset) for name in names)
    return [branch for branch in made if branch is not None]


def _short_branches(
    source: Source, effort: Effort, toolset: Toolset, weights: Mapping[str, float], n: int
) -> list[Branch]:
    allowed = set(SHORT) & set(weights)
    if "calculator" in toolset.abilities:
        allowed.discard("add")
    return [_plain_branch(source, effort, weights, allowed) for _ in range(n) if allowed]


def _plain_branch(
    source: Source, effort: Effort, weights: Mapping[str, float], allowed: Container[str]
) -> Branch:
    names = [name for name in weights if name in allowed]
    name = source.rng.choices(names, [weights[n] for n in names])[0]
    return PLAIN[name](source, effort)


def _wrapped(source: Source, branch: Branch) -> Branch:
    messages = list(branch.messages)
    last = max(i for i, message in enumerate(messages) if message.role == "user")
    messages[last] = Message(role="user", content=wrap(source, messages[last].content))
    return dataclasses.replace(branch, messages=tuple(messages))


def _small_prompt(source: Source) -> str:
    kind = source.rng.random()
    if kind < 0.5:
        return ""
    return instructions(source, 30 if kind < 0.9 else source.rng.randint(60, 800))


def _dressed(source: Source, document: Document) -> Document:
    pick = source.rng.randint
    date = f"{pick(2024, 2030)}-{pick(1, 12):02d}-{pick(1, 28):02d}" if source.chance(0.8) else ""
    identity = source.choice(IDENTITIES) if source.chance(0.05) else ""
    return dataclasses.replace(document, date=date, identity=identity)


def _log_uniform(source: Source, low: int, high: int) -> int:
    return int(math.exp(source.rng.uniform(math.log(low), math.log(high))))


EVAL_SKILLS = (
    *PLAIN_WEIGHTS,
    *(f"{name} document" for name in DOCUMENT_WEIGHTS),
    *(f"functions {name}" for name in functions.BRANCHES),
    *(f"agent {name}" for name in agent.BRANCHES),
    *(f"agent {name}" for name in SHORT),
)
"""What is measured apart; "agent echo" is the skill "echo" under an agent's prompt and tools."""


def eval_documents(skill: str) -> Iterator[Document]:
    """Draw held-out documents that ask for one skill alone, always the same, without end."""
    source = Source(_EVAL_SEED, held_out=True)
    for index in itertools.count():
        yield draw_eval(skill, source, index)


def draw_eval(skill: str, source: Source, index: int) -> Document:
    """Draw a document that asks for one skill alone.

    Args:
        skill: One of EVAL_SKILLS.
        source: A held-out source.
        index: Counts up; efforts and prompt sizes go round with it.
    """
    effort: Effort = ("low", "medium", "high")[index % 3]  # type: ignore[assignment]
    kind, _, name = skill.rpartition(" ")
    if skill in PLAIN:
        return _plain(source, effort, {skill: 1}, 8)
    if name == "document":
        return _dressed(source, DOCUMENTS[kind](source, effort))
    n_prompt = _log_uniform(source, 1000, MAX_PROMPT_TOKENS)
    while True:
        if kind == "functions":
            document = _only(_functions(source, effort, 12), name)
        elif name in agent.BRANCHES:
            one = {name: agent.BRANCHES[name]}
            document = _only(_agent(source, effort, one, 12, n_prompt=n_prompt), name)
        else:
            plain = {name: 1}
            document = _only(_agent(source, effort, {}, 8, n_prompt=n_prompt, plain=plain), name)
        if document.branches:
            return document if kind == "functions" else _under_agent(document)


def _only(document: Document, name: str) -> Document:
    names = (name, f"{name}_call", f"{name}_report")
    kept = tuple(branch for branch in document.branches if branch.skill in names)
    return dataclasses.replace(document, branches=kept)


def _under_agent(document: Document) -> Document:
    branches = (dataclasses.replace(b, skill=f"agent {b.skill}") for b in document.branches)
    return dataclasses.replace(document, branches=tuple(branches))
