"""The options of a chat's requests: their names, and what each may be."""

from gptoss_local.errors import UsageError

OptionValue = float | bool

_RANGES: dict[str, tuple[float, float]] = {
    "temperature": (0, 2),
    "top_p": (0, 1),
    "top_k": (0, 1000),
    "min_p": (0, 1),
    "seed": (0, 2**31 - 1),
    "num_predict": (1, 2**31 - 1),
    "num_ctx": (1, 131_072),
    "repeat_penalty": (0.1, 10),
    "presence_penalty": (-2, 2),
    "frequency_penalty": (-2, 2),
}
_WHOLE = ("top_k", "seed", "num_predict", "num_ctx")
_SWITCHES = {"on": True, "true": True, "off": False, "false": False}


def parse_option(name: str, text: str) -> OptionValue:
    """Return the value of an option as people write it; `truncate` is on or off.

    Raises:
        UsageError: there is no such option, or it cannot be that.
    """
    if name == "truncate":
        if text.lower() not in _SWITCHES:
            raise UsageError("truncate is on or off")
        return _SWITCHES[text.lower()]
    if name not in _RANGES:
        names = ", ".join((*_RANGES, "truncate"))
        raise UsageError(f"there is no option '{name}'", hint=f"There are {names}.")
    low, high = _RANGES[name]
    try:
        value = int(text) if name in _WHOLE else float(text)
    except ValueError:
        value = high + 1
    if not low <= value <= high:
        raise UsageError(f"{name} is a {'whole ' * (name in _WHOLE)}number from {low} to {high}")
    return value
