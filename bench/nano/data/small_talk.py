"""Greetings, identity, help, thanks and the like: one fixed answer per intent, many ways to ask."""

import re
from dataclasses import dataclass

from bench.nano.data.source import Source
from bench.nano.data.wording import phrase
from bench.nano.phrases import banks

BANK = banks("small_talk")


@dataclass(frozen=True, slots=True)
class Intent:
    """What a short message wants.

    Attributes:
        meaning: Ends the sentence "The user ...".
        opens: A greeting or "ok" may stand before it.
    """

    meaning: str
    answer: str
    bank: tuple[str, ...]
    weight: int
    opens: bool = True


INTENTS = tuple(
    Intent(**{**intent, "bank": getattr(BANK, intent["bank"])}) for intent in BANK.INTENTS
)
_THANKED = re.compile("(?i)^(?!(oh )?(no|nah)).*(thank|thx)")
ALL_MESSAGES = frozenset(text.lower().strip(".!? ") for intent in INTENTS for text in intent.bank)


def draw_small_talk(source: Source) -> tuple[str, Intent]:
    """Draw a short message and what it wants."""
    (intent,) = source.rng.choices(INTENTS, [intent.weight for intent in INTENTS])
    text = _phrase(source, intent)
    if source.chance(0.4):
        text = text[0].upper() + text[1:]
    if intent.opens and source.chance(0.15):
        text = source.choice(BANK.OPENERS) + text
    if source.chance(0.45):
        text = text.rstrip(".!?") + source.choice(BANK.ENDINGS)
    return text, intent


def _phrase(source: Source, intent: Intent) -> str:
    """Phrase it; `phrase` may add a thank-you, which alone would be another intent."""
    while True:
        text = phrase(source, intent.bank, ask=False)
        if intent.opens or intent.bank is BANK.THANKS or not _THANKED.search(text):
            return text
