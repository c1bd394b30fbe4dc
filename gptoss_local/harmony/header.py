"""The header of a harmony message, as far as a model wrote one.

    <|start|>ROLE to=RECIPIENT<|channel|>CHANNEL to=RECIPIENT <|constrain|>TYPE<|message|>

Each part is optional, and counts in its place alone: the role after `<|start|>`, the channel after
`<|channel|>`, the recipient after either of them. Everything else is text, however much it looks
like a header: a sentence may speak of `to=functions.f`.

Source: the harmony format as openai-harmony renders it, and slips of real models (no `<|message|>`,
the recipient before the channel, no `<|constrain|>`, a body glued to the recipient).
"""

import re
from dataclasses import dataclass, field
from typing import Literal

Tag = Literal["", "channel", "constrain"]

_ROLE = re.compile(r"\s*(assistant|user|system|developer|tool|functions\.[\w.-]+)(?![\w.])")
_CHANNEL = re.compile(r"\s*(analysis|commentary|final)(?!\w)", re.IGNORECASE)
_TYPE = re.compile(r"\s*(?:json|code)(?!\w)", re.IGNORECASE)
_TYPE_OF_BODY = re.compile(_TYPE.pattern + r"(?=\s*(?:[{(\[:=]|$))", re.IGNORECASE)
_TO = re.compile(r"\s*to=(?=\S)")
_NAME = re.compile(r"[^\s<{(\[\"']+")
_GLUE = re.compile(r"[ \t]*:?[ \t]*")
_PREFIX = "functions."
_BUILT_IN = re.compile(r"(?:functions\.|browser\.|python\b|container\.)")


@dataclass
class Header:
    """The parts of a header, and the text that does not belong to it.

    Attributes:
        role: Who speaks; empty if that is not said.
        channel: In lower case; empty if that is not said.
        recipient: Whom it is for, such as `functions.f`; empty if it has no recipient.
        text: What is left.
    """

    role: str = ""
    channel: str = ""
    recipient: str = ""
    text: str = ""


@dataclass
class HeaderReader:
    """Collects the text of one header between its tags.

    Args:
        names: The functions that are declared: their names may hold what ends others.
        has_role: It begins after `<|start|>`, so with a role.
    """

    names: tuple[str, ...] = ()
    has_role: bool = False
    _parts: list[tuple[Tag, str]] = field(default_factory=lambda: [("", "")])

    def text(self, text: str) -> None:
        tag, before = self._parts[-1]
        self._parts[-1] = tag, before + text

    def tag(self, tag: Tag) -> None:
        self._parts.append((tag, ""))

    @property
    def whole(self) -> str:
        """All text between the tags."""
        return "".join(text for _, text in self._parts)

    @property
    def has_tags(self) -> bool:
        """Return whether anything but text says that this is a header."""
        return self.has_role or len(self._parts) > 1

    def read(self, *, is_whole: bool) -> Header:
        """Return what the header says.

        Args:
            is_whole: `<|message|>` ended it. Otherwise the body, if there is one, is a part of it.
        """
        header = Header()
        texts = [self._read(tag, text, header, is_whole=is_whole) for tag, text in self._parts]
        header.text = " ".join(filter(str.strip, texts)) if len(texts) > 1 else texts[0]
        return header

    def _read(self, tag: Tag, text: str, header: Header, *, is_whole: bool) -> str:
        """Note what a part says, and return the rest of it."""
        at = 0
        if tag == "" and self.has_role and (role := _ROLE.match(text)):
            header.role, at = role[1], role.end()
        elif tag == "constrain" and is_whole and re.fullmatch(r"\s*\S*\s*", text):
            return ""  # any one word is a type there
        if tag == "channel" or (tag == "" and is_whole):
            if channel := _CHANNEL.match(text, at):
                header.channel, at = channel[1].lower(), channel.end()
            elif tag == "channel" and is_whole and (word := re.fullmatch(r"\s*\w+\s*", text)):
                at = word.end()  # the name of no channel
        kind = _TYPE if is_whole else _TYPE_OF_BODY
        at = self._read_recipient(text, _end(kind, text, at), header, is_whole=is_whole)
        at = _end(kind, text, at)
        return text[_end(_GLUE, text, at) :] if at else text

    def _read_recipient(self, text: str, at: int, header: Header, *, is_whole: bool) -> int:
        to = _TO.match(text, at)
        if to is None or (at and not text[at].isspace()):
            return at
        name = self._name(text, to.end())
        known = name in self.names or name.removeprefix(_PREFIX) in self.names
        if not (is_whole or known or _BUILT_IN.match(name)):
            return at
        header.recipient = name
        return to.end() + len(name)

    def _name(self, text: str, at: int) -> str:
        """Return the longest function name there, or all text up to where a name must end."""
        prefix = _PREFIX if text.startswith(_PREFIX, at) else ""
        start = at + len(prefix)
        found = [n for n in self.names if text.startswith(n, start) and _ends(text, start + len(n))]
        if found:
            return prefix + max(found, key=len)
        name = _NAME.match(text, at)
        return name[0] if name else ""


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    """Return the end of what stands there; the place itself if it is something else."""
    found = pattern.match(text, at)
    return found.end() if found else at


def _ends(text: str, at: int) -> bool:
    return at == len(text) or not (text[at].isalnum() or text[at] in "_-.")
