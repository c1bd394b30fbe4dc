"""The header of a harmony message, as far as a model wrote one; everything else is text.

    <|start|>ROLE to=RECIPIENT<|channel|>CHANNEL to=RECIPIENT <|constrain|>TYPE<|message|>

Each part is optional, and counts in its place alone. Source: openai-harmony, and slips of real
models: tags missing, the body glued to the recipient, a function named without `to=`.
"""

import re
from dataclasses import dataclass, field
from typing import Literal

Tag = Literal["", "channel", "constrain"]

_ROLE = re.compile(
    r"\s*(assistant|user|system|developer|tool|functions\.[\w.-]+"
    r"|(?:python|browser(?:\.\w+)?|container\.\w+)(?=\s*(?:to=|$)))(?![\w.])"
)
_OTHER_ROLE = re.compile(r"\s*(?!(?:to=|(?:analysis|commentary|final|json|code)\b))\w", re.I)
_ASSISTANT = re.compile(r"\s*(assistant)(?!\w)")
_CHANNEL = re.compile(r"\s*(analysis|commentary|final)(?:\s*\1)?(?!\w)", re.IGNORECASE)
_OTHER_CHANNEL = re.compile(r"\s*(?!to=|json\b|code\b)(\w+)(?=\s+to=|\s*$)", re.IGNORECASE)
_GLUED = re.compile(r"(?:^|\s)(?:assistant|analysis|commentary|final)$", re.IGNORECASE)
_WORDS = ("assistant", "analysis", "commentary", "final", "json", "to=")
_TYPE = re.compile(r"\s*(json|code)(?!\w)", re.IGNORECASE)
_TYPE_OF_BODY = re.compile(_TYPE.pattern + r"(?=\s*(?:[{(\[:=]|$))", re.IGNORECASE)
_TO = re.compile(r"\s*_?to=\s*(?=\S)")
_SPACE = re.compile(r"\s*")
_AFTER_FUNCTION = re.compile(r"\s*(?:json|code)?\s*(?:$|(?P<body>[{(\[:=]))", re.IGNORECASE)
_NAME = re.compile(r"[^\s<{(\[\"']+")
_GLUE = re.compile(r"[ \t]*:?[ \t]*")
_PREFIX = "functions."
_BUILT_IN = re.compile(r"(?:functions\.|browser\.|python\b|container\.)")


@dataclass
class Header:
    """The parts of a header, empty where it does not say them, and the text besides them.

    Attributes:
        function: A function that is named without `to=`.
        is_json: The header says that the body is JSON.
    """

    role: str = ""
    channel: str = ""
    recipient: str = ""
    function: str = ""
    is_json: bool = False
    text: str = ""


@dataclass
class HeaderReader:
    """Collects the text of one header between its tags.

    `names`, of functions, may hold characters that end others; `has_role`: it follows `<|start|>`.
    """

    names: tuple[str, ...] = ()
    has_role: bool = False
    _parts: list[tuple[Tag, str]] = field(default_factory=lambda: [("", "")])

    def text(self, text: str) -> None:
        tag, before = self._parts[-1]
        # Words of a header are tokens of their own, though models forget blanks between them.
        if (tag == "channel" or self.has_role) and re.match(r"\w", text) and _GLUED.search(before):
            text = f" {text}"
        self._parts[-1] = tag, before + text

    def tag(self, tag: Tag) -> None:
        self._parts.append((tag, ""))

    @property
    def whole(self) -> str:
        return "".join(text for _, text in self._parts)

    @property
    def has_tags(self) -> bool:
        return self.has_role or len(self._parts) > 1

    @property
    def is_of_other(self) -> bool:
        first = self._parts[0][1]
        if not self.has_role:
            return False
        if role := _ROLE.match(first):
            return role[1] != "assistant"
        return _OTHER_ROLE.match(first) is not None

    def read(self, *, is_whole: bool, is_called: bool = False) -> Header:
        """Return the fields; unless `is_whole`, no `<|message|>` came, and the body is in them.

        With `is_called`, it is certain that a call is there, even if `<|start|>` is not.
        """
        header = Header()
        first = self._parts[0]
        if is_called and not self.has_role and (role := _ASSISTANT.match(first[1])):
            self._parts[0] = first[0], first[1][role.end() :]
        texts = [
            self._read(tag, text, header, is_whole=is_whole, has_channel=is_whole or is_called)
            for tag, text in self._parts
        ]
        header.text = " ".join(filter(str.strip, texts)) if len(texts) > 1 else texts[0]
        return header

    def _read(
        self, tag: Tag, text: str, header: Header, *, is_whole: bool, has_channel: bool
    ) -> str:
        at = 0
        if tag == "" and self.has_role and (role := _ROLE.match(text)):
            header.role, at = role[1], role.end()
            header.function = role[1] if role[1].startswith(_PREFIX) else ""
        channel = None
        if tag == "channel" or (tag == "" and has_channel):
            channel = _CHANNEL.match(text, at)
        if channel is None and tag == "channel" and is_whole:
            channel = _OTHER_CHANNEL.match(text, at)
        if channel is not None and channel[1] not in self.names:
            header.channel, at = channel[1].lower(), channel.end()
        kind = _TYPE if is_whole else _TYPE_OF_BODY
        at = _read_type(kind, text, at, header)
        at = self._read_recipient(text, at, header, is_whole=is_whole)
        at = self._read_function(text, at, header, is_whole=is_whole)
        at = _read_type(kind, text, at, header)
        rest = text[_end(_GLUE, text, at) :] if at else text
        is_type = tag == "constrain" and re.fullmatch(r"\s*\S*\s*", rest)  # any one word
        return "" if is_whole and is_type else rest

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

    def _read_function(self, text: str, at: int, header: Header, *, is_whole: bool) -> int:
        if header.recipient or header.function:
            return at
        start = _end(_SPACE, text, at)
        name = self._name(text, start)
        is_name = name.startswith(_PREFIX) or name in self.names
        after = _AFTER_FUNCTION.match(text, start + len(name)) if is_name else None
        if after is None or (is_whole and after["body"]):
            return at
        header.function = name
        return start + len(name)

    def _name(self, text: str, at: int) -> str:
        prefix = _PREFIX if text.startswith(_PREFIX, at) else ""
        start = at + len(prefix)
        found = [n for n in self.names if text.startswith(n, start) and _ends(text, start + len(n))]
        if found:
            return prefix + max(found, key=len)
        name = _NAME.match(text, at)
        return name[0] if name else ""


def is_rest_of_header(text: str) -> bool:
    """Return whether a text is nothing but the beginning of a header's words."""
    words = text.lower().split()
    return all(w.startswith("to=") or any(k.startswith(w) for k in _WORDS) for w in words)


def _read_type(pattern: re.Pattern[str], text: str, at: int, header: Header) -> int:
    found = pattern.match(text, at)
    if found is None:
        return at
    header.is_json = header.is_json or found[1].lower() == "json"
    return found.end()


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return found.end() if found else at


def _ends(text: str, at: int) -> bool:
    return at == len(text) or not (text[at].isalnum() or text[at] in "_-.")
