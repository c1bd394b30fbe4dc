"""Find tables, code and links in Markdown, and number its items."""

import re
from collections.abc import Iterator

_TABLE_RULE = re.compile(r"\|?(?:\s*:?-+:?\s*\|)+(?:\s*:?-+:?)?")


def is_table(text: str) -> bool:
    """Return whether a block is a table from its first line on."""
    head, _, rest = text.lstrip("\n").partition("\n")
    rule = rest.partition("\n")[0].strip()
    n_cells = [len(line.strip().strip("|").split("|")) for line in (head, rule)]
    return "|" in head and bool(_TABLE_RULE.fullmatch(rule)) and n_cells[0] == n_cells[1]


def code_blocks(text: str) -> list[str]:
    from markdown_it import MarkdownIt  # PERF: 30 ms, and rarely needed

    return [token.content for token in MarkdownIt().parse(text) if token.type == "fence"]


_ADDRESS = re.compile(r"(?:https?://|mailto:)[!-~]+")
_BARE = re.compile(r"https?://[^\s<>\"'`\[\]{}]*[^\s<>\"'`\[\]{}.,;:!?*_]")


def is_openable(address: str) -> bool:
    """Return whether a terminal or a browser may get an address: the web's, without controls."""
    return bool(_ADDRESS.fullmatch(address))


def bare_addresses(text: str) -> Iterator[tuple[int, int]]:
    """Yield where addresses stand in a text; a bracket that they close belongs to them."""
    for found in _BARE.finditer(text):
        address = found[0]
        while address.count(")") > address.count("("):
            address = address[: address.rindex(")")]
        if is_openable(address):
            yield found.start(), found.start() + len(address)


def links_of(text: str) -> list[str]:
    from markdown_it import MarkdownIt  # PERF: 30 ms, and rarely needed

    found: list[str] = []
    for token in MarkdownIt().parse(text):
        for child in token.children or ():
            if child.type == "link_open":
                found.append(str(child.attrs["href"]))
            elif child.type == "text":
                found += [child.content[a:b] for a, b in bare_addresses(child.content)]
    return [address for address in dict.fromkeys(found) if is_openable(address)]


def shown_number(typed: int, typed_before: int, shown_before: int) -> int:
    """Return the number of an item: as it was typed, or counted where all have the same."""
    return shown_before + 1 if typed == typed_before else typed
