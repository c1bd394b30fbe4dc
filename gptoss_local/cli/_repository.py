"""Repositories of the hub, as people name them: by name, or by an address that they copied."""

import re

_PART = r"[A-Za-z0-9][\w.-]*"
_NAME = re.compile(rf"{_PART}/{_PART}(?:@\S+)?")
_ADDRESS = re.compile(
    rf"(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/({_PART}/{_PART})"
    r"(?:/(?:tree|blob|resolve)/([^/?#\s]+)[^?#]*)?/?(?:[?#].*)?"
)


def repository(text: str) -> str | None:
    """Return `OWNER/NAME` or `OWNER/NAME@REVISION`; None if the text names no repository.

    Args:
        text: Such a name, `https://huggingface.co/OWNER/NAME`, `hf.co/OWNER/NAME`,
            `.../tree/REVISION`, or `hf://OWNER/NAME`.
    """
    text = text.removeprefix("hf://")
    if match := _ADDRESS.fullmatch(text):
        return match[1] if match[2] is None else f"{match[1]}@{match[2]}"
    return text if _NAME.fullmatch(text) else None
