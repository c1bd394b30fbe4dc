"""Instructions like those of coding agents.

All of it is a distraction: nothing here changes the right answer to a request. What agents put
around the user's words is in `agent_prompt_wrap`.
"""

import itertools

from bench.nano.data import agent_prompt_blocks as blocks
from bench.nano.data.agent_prompt_fill import RULE_PATTERNS, SMALL_PATTERNS, Filler
from bench.nano.data.source import Source
from bench.nano.phrases import banks

BANK = banks("prompts")

SMALL = 60  # below so many tokens there is only a sentence or two
HEADLESS = 200  # and below so many no heading
_KINDS, _WEIGHTS = zip(*blocks.BLOCKS, strict=True)
_CUMULATIVE = tuple(itertools.accumulate(_WEIGHTS))


def instructions(source: Source, n_tokens: int) -> str:
    """Write a developer's prompt of about so many tokens, 0 to 24,000."""
    if n_tokens <= 0:
        return ""
    filler = Filler(source, 6 + min(n_tokens, 12_000) // 80)
    if n_tokens < SMALL:
        return _sentences(filler, n_tokens, filler.one(SMALL_PATTERNS))
    first = blocks.identity(filler)
    if n_tokens < HEADLESS and source.chance(0.6):
        return _sentences(filler, n_tokens, first)
    return _long(filler, n_tokens, first)


def _sentences(filler: Filler, n_tokens: int, text: str) -> str:
    """Go on with rules as long as there is room for another."""
    while _tokens(text) + 18 < n_tokens:
        text += filler.source.choice((" ", " ", "\n")) + filler.one(RULE_PATTERNS)
    return text


def _long(filler: Filler, n_tokens: int, first: str) -> str:
    """Sections of one or a few blocks each, their headings mostly in one style."""
    source = filler.source
    style = source.choice(BANK.HEADS)
    parts = [first]
    left = n_tokens - _tokens(first)
    while left > 12:
        n_blocks = source.rng.choice((1, 1, 1, 2, 3))
        section: list[str] = []
        for _ in range(n_blocks):
            block = source.rng.choices(_KINDS, cum_weights=_CUMULATIVE)[0]
            text = block(filler, left)
            left -= _tokens(text) + 1
            section.append(text)
            if left < 12:
                break
        body = "\n\n".join(section)
        shape = source.choice(BANK.HEADS) if source.chance(0.12) else style
        parts.append(_section(filler, shape, body) if source.chance(0.85) else body)
        left -= 4
    return "\n\n".join(parts)


def _section(filler: Filler, shape: str, body: str) -> str:
    heading = blocks.heading(filler)
    if "{tag}" in shape:
        tag = "_".join(word for word in heading.lower().split() if word.isalnum()) or "section"
        return f"<{tag}>\n{body}\n</{tag}>"
    title = heading.upper() if filler.random() < 0.1 else heading
    return shape.format(title, body)


def _tokens(text: str) -> int:
    """Guess how many tokens a text has."""
    return len(text) * 10 // 36 + 1
