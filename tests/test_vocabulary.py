"""The English: spelling, words that a native writer would not use, and how docstrings begin.

Comments, docstrings and strings of the code are checked, and the prose of the docs. A rule is only
here if it is nearly always right; its mistakes are listed below with a reason.
"""

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
PLACES = (
    *("gptoss_local", "convert", "tui", "installers", "bench", "docs"),
    *("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"),
)
TRAINING = ROOT / "bench" / "nano"  # its words are people's questions, mistakes included
CODE = [path for place in PLACES for path in sorted((ROOT / place).rglob("*.py"))]
CODE = [path for path in CODE if not path.is_relative_to(TRAINING)]
PAGES = [path for place in PLACES for path in sorted(ROOT.glob(f"{place}/**/*.md"))]
PAGES += [ROOT / place for place in PLACES if place.endswith(".md")]

SPELLED_SO = {
    "edn": "Clojure's notation",
    "ket": "a vector of quantum mechanics",
    "nothink": "Ollama's `/set nothink`",
    "requird": "a mistake that the API documents its answer to",
    "sme": "matrix instructions of Arm",
}
"""Words that codespell takes for mistakes, and their meaning."""

_PLACE = r"(?! (?:the|a|an|one|any|each|every|its|their|GPUs?|CPUs?|disks?|top|to)\b)"
_PROXY = r"(?! (?:a|an|the|your) (?:\w+ )?(?:proxy|firewall|router|gateway|VPN)\b)"
_BETTER = r"(?!longer|more|less|fewer|one\b|\w+er\b|good|use\b|different|problem|wonder)"

WORDS = {
    rf"\b(?:go|goes|going|gone|went) on\b{_PLACE}": "continue, resume",
    rf"(?<!look-)\bbehind\b{_PROXY}": "after",
    r"\bbeside\b(?!\.py)": "besides, alongside, next to",
    r"\banew\b": "again",
    r"\bamid(?:st)?\b": "during, in the middle of, within",
    r"\b(?:shall|shan't)\b": "must, should, will",
    r"\bof late\b": "recently",
    r"\bmend(?:s|ed|ing)?\b": "fix, repair",
    r"\b(?:somebody|nobody|whoever|whosoever)\b": "a user, no client, any client that",
    rf"(?<!there )\b(?:is|are|was|were) no {_BETTER}[\w-]+(?: [\w-]+)?[.,:;]": "is not a",
    r"(?<!there )\b(?:is|are|was|were) none of\b(?! these\b| those\b)": "is not one of",
    r"\w: Told\b": "Called with",
}
"""Patterns, case ignored, and what to write instead."""

ANY_WORD = re.compile("|".join(f"(?:{pattern})" for pattern in WORDS), re.IGNORECASE)

OPENER = re.compile(r"(?:What|Which|Whether|Whose|Whom?|Of|How|Where|When|Until|By|As)\b")

_NO_QUESTION = r"(?![^.:;]*\?)"  # to the end of the sentence
HEADLESS = re.compile(
    r"\b(?:what(?! to\b|'s\b| does\b| if\b| about\b)|whatever|whose|(?:that|those|which) of"
    rf"|the ones? (?:that|which|of|in|it|they))\b{_NO_QUESTION}",
    re.IGNORECASE,
)
"""Heads of clauses without a noun: "what is there" for "the files"."""

ALLOWED: dict[tuple[str, str], str] = {}
"""Excused: a path and the words found there, and why."""


class Text(NamedTuple):
    line: int
    words: str
    is_docstring: bool = False


@cache
def texts(path: Path) -> list[Text]:
    """Return comments, strings and docstrings, each with its words on one line."""
    source = path.read_text(encoding="utf-8")
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    found = [Text(t.start[0], t.string) for t in tokens if t.type == tokenize.COMMENT]
    nodes = list(ast.walk(ast.parse(source)))
    bare = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            found.append(Text(node.lineno, " ".join(node.value.split()), id(node) in bare))
    return found


def prose(path: Path) -> Iterator[Text]:
    """Yield the paragraphs, list items and rows of a page, without code and link targets."""
    page = re.sub(r"```.*?```", _blank, path.read_text(encoding="utf-8"), flags=re.DOTALL)
    line = 1
    for paragraph in re.split(r"(?<=\n)(?=\s*\n|\s*[-*|#])", page):
        words = re.sub(r"`[^`]*`|(?<=\])\([^)]*\)", "", paragraph)  # code, and where a link leads
        yield Text(line, " ".join(words.split()))
        line += paragraph.count("\n")


def _blank(code: re.Match[str]) -> str:
    return "\n" * code[0].count("\n")


def wrong_words(words: str) -> Iterator[tuple[str, str]]:
    """Yield each find and what to write instead."""
    if ANY_WORD.search(words):
        for pattern, instead in WORDS.items():
            for found in re.finditer(pattern, words, re.IGNORECASE):
                yield found[0], instead


def findings(path: Path) -> Iterator[str]:
    name = str(path.relative_to(ROOT))
    for text in texts(path) if path.suffix == ".py" else prose(path):
        for found, instead in wrong_words(text.words):
            if (name, found) not in ALLOWED:
                yield f"{name}:{text.line}: '{found}': {instead}?"


@pytest.mark.parametrize("place", PLACES)
def test_words_are_those_of_a_native_writer(place: str) -> None:
    paths = [path for path in (*CODE, *PAGES) if path.is_relative_to(ROOT / place)]
    assert paths
    assert [each for path in paths for each in findings(path)] == []


def test_docstrings_open_with_a_verb_or_a_noun() -> None:
    assert [
        f"{path}:{text.line}: {text.words[:60]}"
        for path in CODE
        for text in texts(path)
        if text.is_docstring and OPENER.match(text.words)
    ] == []


def test_spelling() -> None:
    names, others = ",".join(SPELLED_SO), f"*/web/vendor/*,{TRAINING.relative_to(ROOT)}/*"
    command = [sys.executable, "-m", "codespell_lib", "-L", names, "-S", others, *PLACES]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, encoding="utf-8", check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def headless(texts: list[Text]) -> float:
    """Return the headless clauses in a thousand words."""
    words = sum(len(re.findall(r"[A-Za-z']+", text.words)) for text in texts)
    return 1000 * sum(len(HEADLESS.findall(text.words)) for text in texts) / words


def explanations(paths: Iterable[Path]) -> list[Text]:
    """Return the docstrings and comments of modules."""
    found = [text for path in paths for text in texts(path)]
    return [text for text in found if text.is_docstring or text.words.startswith("#")]


PRODUCT = [path for path in CODE if not path.is_relative_to(ROOT / "bench")]
TESTS = sorted((ROOT / "tests").rglob("*.py"))


@pytest.mark.parametrize("paths", [PRODUCT, TESTS], ids=["product", "tests"])
def test_docstrings_and_comments_name_their_things(paths: list[Path]) -> None:
    """At most 3 clauses in a thousand words have a pronoun as their head.

    Counted are "what", "whatever", "whose", "that of", "those of", "which of" and "the one that".
    Not counted are questions, up to their question mark, and the idioms "what to", "what's",
    "what does", "what if" and "what about".
    """
    assert headless(explanations(paths)) <= 3


def test_words_of_tests_are_those_of_a_native_writer() -> None:
    """At most 2 in a thousand are not."""
    found = explanations(TESTS)
    n_words = sum(len(re.findall(r"[A-Za-z']+", text.words)) for text in found)
    assert sum(len(list(wrong_words(text.words))) for text in found) <= 2 * n_words / 1000


def test_pages_name_their_things() -> None:
    """At most 1 clause in a thousand words is headless; the history of versions is not read."""
    pages = [path for path in PAGES if "bench" not in path.parts and path.stem != "CHANGELOG"]
    assert headless([text for path in pages for text in prose(path)]) <= 1
