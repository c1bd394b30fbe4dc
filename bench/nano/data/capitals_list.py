"""The countries and capitals that the model knows by heart, and what else people call a country."""

from bench.nano.phrases import banks

BANK = banks("capitals")

CAPITALS: dict[str, str] = dict(BANK.CAPITALS)
_NAMES = {*CAPITALS, *(name for names in BANK.OTHER_NAMES.values() for name in names)}
_LOWER_NAMES = frozenset(name.lower() for name in _NAMES)


def is_country(name: str) -> bool:
    """Whether the name, in any case, is one that the model has an answer for."""
    return name.lower().removeprefix("the ") in _LOWER_NAMES


def spell(country: str) -> str:
    """Name a country as it stands inside a sentence."""
    return f"the {country}" if country in BANK.WITH_ARTICLE else country
