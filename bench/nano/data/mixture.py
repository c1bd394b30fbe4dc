"""Draws training documents of all kinds, by weight."""

import dataclasses
import math
from collections.abc import Callable, Container, Mapping

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
from bench.nano.data.tools import Toolset, user
from bench.nano.phrases import banks
from gptoss_local.base.types import Effort

BANK = banks("mixture")

PlainSkill = Callable[[Source, Effort], Branch]
ToolSkill = Callable[[Source, Effort, Toolset], Branch | None]

PLAIN: dict[str, PlainSkill] = (
    talk.BRANCHES | knowledge.BRANCHES | echo.BRANCHES | extract.BRANCHES | edit.BRANCHES
    | memory.BRANCHES
)  # fmt: skip
DOCUMENTS: dict[str, Callable[[Source, Effort], Document]] = (
    response_format.DOCUMENTS | edit.DOCUMENTS | memory.DOCUMENTS
)
MAX_PROMPT_TOKENS = 24_000  # of instructions; tools and the request come on top
SHORT_PROMPT_TOKENS, LONG_SHARE = 3_000, 0.4
"""Most agents to learn from have no longer instructions: behind 2,000 tokens answers are as often
right as behind 20,000, so that it is better to ask more of them."""


def draw(source: Source) -> Document:
    """Draw a training document."""
    kind = _weighted(source, BANK.KIND_WEIGHTS)
    effort = source.rng.choices(("low", "medium", "high"), (1.0, 1.4, 1.0))[0]
    if kind == "document":
        name = _weighted(source, BANK.DOCUMENT_WEIGHTS)
        document = DOCUMENTS[name](source, effort)
    else:
        document = {"plain": _plain, "functions": _functions, "agent": _agent}[kind](source, effort)
    pick = source.rng.randint
    date = f"{pick(2024, 2030)}-{pick(1, 12):02d}-{pick(1, 28):02d}" if source.chance(0.8) else ""
    identity = source.choice(BANK.IDENTITIES) if source.chance(0.05) else ""
    return dataclasses.replace(document, date=date, identity=identity)


def _plain(source: Source, effort: Effort) -> Document:
    """Questions without an agent; a small prompt and a few finished turns may stand before them."""
    n_branches, turns, tools = source.rng.randint(1, 6), (), ()
    if source.chance(0.2):
        turns = knowledge.earlier_turns(source, source.rng.randint(1, 3))
    if source.chance(0.12):  # tools that nobody asks for
        tools = draw_toolset(source, source.rng.randint(1, 4)).tools
    allowed = [name for name in BANK.PLAIN_WEIGHTS if not tools or name not in BANK.TOOLLESS]
    branches = [_plain_branch(source, effort, allowed) for _ in range(n_branches)]
    if source.chance(0.3):
        branches = [_wrapped(source, branch) for branch in branches]
    prompt = _small_prompt(source)
    return Document(effort, tuple(branches), instructions=prompt, tools=tools, context=turns)


def _functions(source: Source, effort: Effort) -> Document:
    """A program's prompt with some functions, most questions calling for one of them."""
    n_branches, abilities = source.rng.randint(2, 8), functions.draw_functions(source)
    tools = [ability.tool for ability in abilities]
    if source.chance(0.3):
        names = {tool.name for tool in tools}
        extra = draw_toolset(source, source.rng.randint(1, 4), roles=()).tools
        tools += [tool for tool in extra if tool.name not in names]
    source.rng.shuffle(tools)
    toolset = Toolset(tuple(tools), {ability.role: ability for ability in abilities})
    branches = _tool_branches(source, effort, toolset, functions.BRANCHES, n_branches)
    branches += _short_branches(source, effort, toolset, n_branches // 3)
    prompt = _small_prompt(source)
    return Document(effort, tuple(branches), instructions=prompt, tools=toolset.tools)


def _agent(source: Source, effort: Effort) -> Document:
    """A coding agent's long prompt and tools; a third of its questions need none."""
    n_branches = source.rng.randint(10, 24)
    toolset = draw_toolset(source, source.rng.randint(1, 25))
    n_most = MAX_PROMPT_TOKENS if source.chance(LONG_SHARE) else SHORT_PROMPT_TOKENS
    n_prompt = int(math.exp(source.rng.uniform(math.log(30), math.log(n_most))))
    n_plain = n_branches // 3
    branches = _tool_branches(source, effort, toolset, agent.BRANCHES, n_branches - n_plain)
    branches += _tool_branches(source, effort, toolset, functions.BRANCHES, n_plain // 4)
    branches += _short_branches(source, effort, toolset, n_plain)
    wrapped = tuple(_wrapped(source, branch) for branch in branches)
    prompt = instructions(source, n_prompt)
    return Document(effort, wrapped, instructions=prompt, tools=toolset.tools)


def _tool_branches(
    source: Source, effort: Effort, toolset: Toolset, skills: Mapping[str, ToolSkill], n: int
) -> list[Branch]:
    """Up to `n` branches; fewer where the tools do not allow what is drawn."""
    names = source.rng.choices(list(skills), [BANK.TOOL_WEIGHTS[name] for name in skills], k=n)
    made = (skills[name](source, effort, toolset) for name in names)
    return [branch for branch in made if branch is not None]


def _short_branches(source: Source, effort: Effort, toolset: Toolset, n: int) -> list[Branch]:
    """Questions that no tool of the toolset answers."""
    allowed = set(BANK.SHORT) - ({"add"} if "calculator" in toolset.abilities else set())
    return [_plain_branch(source, effort, allowed) for _ in range(n)]


def _plain_branch(source: Source, effort: Effort, allowed: Container[str]) -> Branch:
    weights = {name: n for name, n in BANK.PLAIN_WEIGHTS.items() if name in allowed}
    return PLAIN[_weighted(source, weights)](source, effort)


def _weighted(source: Source, weights: Mapping[str, float]) -> str:
    return source.rng.choices(list(weights), list(weights.values()))[0]


def _wrapped(source: Source, branch: Branch) -> Branch:
    """Put around the last user message what an agent puts around it."""
    messages = list(branch.messages)
    last = max(i for i, message in enumerate(messages) if message.role == "user")
    messages[last] = user(wrap(source, messages[last].content))
    return dataclasses.replace(branch, messages=tuple(messages))


def _small_prompt(source: Source) -> str:
    return source.drawn(
        (0.5, str),
        (0.9, lambda: instructions(source, 30)),
        (1, lambda: instructions(source, source.rng.randint(60, 800))),
    )
