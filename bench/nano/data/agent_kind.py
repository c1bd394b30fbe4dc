"""What the words of one role of a coding agent's tools are: see `agent_names`."""

from dataclasses import dataclass

STRING, NUMBER, INTEGER, BOOLEAN = "string", "number", "integer", "boolean"


@dataclass(frozen=True, slots=True)
class Kind:
    """The words of one role.

    Attributes:
        names: As well-known agents spell it.
        verbs: With `objects`, the parts of a generated name.
        slots: Names of the arguments that hold the slots, one tuple for all slots together.
        about: Per slot, what the schema says of it.
        summaries: First lines of a description.
        details: Further lines of it.
        extras: Optional arguments: name, type, description.
        reason: What to write into a required argument that asks what the call is for.
    """

    names: tuple[str, ...]
    verbs: tuple[str, ...]
    objects: tuple[str, ...]
    slots: tuple[tuple[str, ...], ...]
    about: dict[str, tuple[str, ...]]
    summaries: tuple[str, ...]
    details: tuple[str, ...]
    extras: tuple[tuple[str, str, str], ...]
    reason: str


def names(*groups: str) -> tuple[tuple[str, ...], ...]:
    """Names of arguments: those between spaces are choices, `+` joins those of one tool."""
    return tuple(tuple(name.split("+")) for group in groups for name in group.split())
