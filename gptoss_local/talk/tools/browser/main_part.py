"""Finds the main element of a page: the smallest one with the text that readability finds."""

import copy
import logging
import re
from collections import Counter

from gptoss_local.talk.tools.browser.links import Node

_MAX_ELEMENTS = 30_000  # PERF: readability takes 2 s for as many, and rarely helps with such pages
_CONTAINERS = ("article", "center", "div", "form", "main", "section")
_ASIDES = ("nav", "footer", "aside")
_MENUS = ("div", "form", "header", "ol", "section", "table", "ul")
_ENOUGH = 0.95  # of readability's text
_ENOUGH_OF_PAGE = 0.5  # of its text outside links; readability may take one comment of many
_MARK = "data-gptoss"


def main_part(body: Node) -> tuple[Node, list[Node]]:
    """Return the smallest element with the main text, and the menus and the like in it."""
    nodes = list(body.iter())
    if len(nodes) > _MAX_ELEMENTS:
        return body, []
    found = _found_by_readability(body)
    main, prose, links = Counter[Node](), Counter[Node](), Counter[Node]()
    for n, node in enumerate(nodes):
        path = [node, *node.iterancestors()]
        texts = (node.text, *(child.tail for child in node))
        length = len(" ".join("".join(filter(None, texts)).split()))
        is_link = any(each.tag == "a" for each in path)
        for each in path:
            main[each] += length * (n in found)
            links[each] += length * is_link
            prose[each] += length * (not is_link)
    part, inner = body, body
    while inner is not None:
        part = inner
        inner = next(
            (
                each
                for each in part.iterchildren(*_CONTAINERS)
                if 0 < main[body] * _ENOUGH <= main[each]
                and prose[each] >= prose[body] * _ENOUGH_OF_PAGE
            ),
            None,
        )
    asides: list[Node] = []
    for each in part.iter(*_ASIDES, *_MENUS):
        is_menu = each.tag in _ASIDES or prose[each] < links[each] < main[body]
        is_inside = any(outer in asides or outer.tag == "a" for outer in each.iterancestors())
        if each is not part and is_menu and not main[each] and not is_inside:
            asides.append(each)
    return part, asides


def _found_by_readability(body: Node) -> set[int]:
    """Return the elements with the main text, by their place in the page."""
    from readability import Document

    marked = copy.deepcopy(body)
    for n, node in enumerate(marked.iter()):
        node.set(_MARK, str(n))
    logging.getLogger("readability").setLevel(logging.CRITICAL + 1)
    try:
        found = Document(marked).summary(html_partial=True)
    except ValueError:  # of its own kind
        return set()
    return {int(n) for n in re.findall(rf'{_MARK}="(\d+)"', found)}
