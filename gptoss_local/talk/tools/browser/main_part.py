"""Finds what a page is about: trafilatura says which text that is, this module which element."""

import copy
from collections import Counter
from itertools import chain

from gptoss_local.talk.tools.browser.links import Node, text_of

_MAX_ELEMENTS = 30_000  # PERF: trafilatura takes 2 s for as many, and rarely helps with such pages
_BLOCKS = ("p", "li", "td", "th", "pre", "blockquote", "dt", "dd", "div", "section")
_HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
_FOUND_BLOCKS = ("p", "item", "cell", "quote", "code", "head")
_CONTAINERS = ("article", "center", "div", "form", "main", "section")
_ENOUGH = 0.95  # of the main text


def main_part(body: Node) -> tuple[Node, list[Node]]:
    """Return the smallest element with the main text, and the menus and the like in it.

    Args:
        body: Of a page, with its links marked.
    """
    import trafilatura  # PERF: 160 ms

    if sum(1 for _ in body.iter()) > _MAX_ELEMENTS:
        return body, []
    document = trafilatura.bare_extraction(
        copy.deepcopy(body), favor_recall=True, include_comments=False, include_tables=True
    )
    extracted = getattr(document, "body", None)
    if extracted is None:
        return body, []
    wanted = {text_of(block) for block in extracted.iter(*_FOUND_BLOCKS)} - {""}
    headings = {text_of(block) for block in extracted.iter("head")} - {""}
    weights, n_headings = _weigh(body, wanted, headings)
    part, inner = body, body
    while inner is not None:
        part = inner
        inner = next((each for each in part if _holds(each, body, weights, n_headings)), None)
    asides: list[Node] = []
    for each in part.iter("nav", "footer", "aside"):
        is_inside = any(outer in asides for outer in each.iterancestors())
        if each is not part and not weights[each] and not is_inside:
            asides.append(each)
    return part, asides


def _weigh(body: Node, wanted: set[str], headings: set[str]) -> tuple[Counter[Node], Counter[Node]]:
    """Return for each element how many characters of main text, and headings of it, it has."""
    weights: Counter[Node] = Counter()
    n_headings: Counter[Node] = Counter()
    for block in body.iter(*_BLOCKS, *_HEADINGS):
        is_heading = block.tag in _HEADINGS
        text = text_of(block)
        if text in (headings if is_heading else wanted):
            for each in chain([block], block.iterancestors()):
                weights[each] += len(text)
                n_headings[each] += is_heading
    return weights, n_headings


def _holds(child: Node, body: Node, weights: Counter[Node], n_headings: Counter[Node]) -> bool:
    """Return whether an element has the main text of the page, with all headings."""
    is_heavy = 0 < weights[body] * _ENOUGH <= weights[child]
    return is_heavy and n_headings[child] == n_headings[body] and child.tag in _CONTAINERS
