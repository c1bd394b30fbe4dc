"""Draws the declared tools of a coding agent: those of the roles, and others among them.

A role is what a branch asks for ("shell", "create", ...); `agent_tools` says how its tool looks,
`agent_others` draws the tools that nobody asks for.
"""

from collections.abc import Sequence

from bench.nano.data.ability import Ability, Toolset
from bench.nano.data.agent_others import draw_other
from bench.nano.data.agent_tools import draw_ability, draw_editor
from bench.nano.data.functions import draw_functions
from bench.nano.data.source import Source
from gptoss_local.harmony.message import Tool

ROLES = ("shell", "create", "read", "edit", "list", "search")


def draw_toolset(source: Source, n_tools: int, roles: Sequence[str] = ROLES) -> Toolset:
    """Draw `n_tools` tools, of which as many as fit have a role.

    Args:
        roles: May be empty, then no tool can be asked for. Else a function that has nothing to do
            with code ("weather") may be among the tools, under its own role.
    """
    abilities: dict[str, Ability] = {}
    tools: dict[str, Tool] = {}
    present = _present(source, roles, n_tools)
    if {"edit", "create"} <= {*present} and source.chance(0.18):
        edit, create = draw_editor(source, tools)
        abilities |= {"edit": edit, "create": create}
        tools[edit.tool.name] = edit.tool
    for role in present:
        if role not in abilities:
            ability = abilities[role] = draw_ability(source, role, tools)
            tools[ability.tool.name] = ability.tool
    if roles and n_tools > len(tools) and source.chance(0.25):
        for ability in draw_functions(source)[: n_tools - len(tools)]:
            clash = ability.tool.name in tools or ability.role in abilities
            if not clash and ability.role not in ROLES:
                abilities[ability.role] = ability
                tools[ability.tool.name] = ability.tool
    while len(tools) < n_tools:
        tool = draw_other(source, tools)
        tools[tool.name] = tool
    declared = list(tools.values())
    if source.chance(0.8):
        source.rng.shuffle(declared)
    return Toolset(tuple(declared), abilities)


def _present(source: Source, roles: Sequence[str], n_tools: int) -> list[str]:
    """Which roles get a tool; the shell is there more often than the others."""
    n_left_out = source.choice((0, 0, 0, 0, 1, 2)) if n_tools < 12 else 0
    order = source.rng.sample(list(roles), len(roles))
    if "shell" in order and source.chance(0.6):
        order.remove("shell")
        order.insert(0, "shell")
    return order[: max(min(n_tools, 1), min(n_tools, len(roles) - n_left_out))]
