"""Whether an answer is the wanted one, by the strictest reading of harmony."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from bench.nano.data.document import Branch
from gptoss_local.formats.o200k import FIRST_SPECIAL
from gptoss_local.harmony import load_vocabulary
from gptoss_local.harmony.vocabulary import (
    CALL,
    CHANNEL,
    CONSTRAIN,
    END,
    MESSAGE,
    RETURN,
    START,
)

# 0xFF is in no UTF-8 text, so that text which spells a tag stays text
_MARK_OF = {
    CHANNEL: b"\xffC", MESSAGE: b"\xffM", END: b"\xffE", START: b"\xffS", CONSTRAIN: b"\xffJ",
    RETURN: b"\xffR", CALL: b"\xffX",
}  # fmt: skip
_OTHER = b"\xff?"
_ANALYSIS = rb"(?:\xffCanalysis\xffM(?P<analysis>[^\xff]*)\xffE\xffSassistant)?"
_FINAL = rb"\xffCfinal\xffM(?P<text>[^\xff]*)\xffR"
_CALL = rb"\xffCcommentary to=functions\.(?P<call>[^\s\xff]+) \xffJjson\xffM"
_ARGUMENTS = rb"(?P<arguments>[^\xff]*)\xffX"
_ANSWER = re.compile(_ANALYSIS + rb"(?:" + _FINAL + rb"|" + _CALL + _ARGUMENTS + rb")")
_OPENED = re.compile(rb"(?P<text>[^\xff]*)\xffR")


@dataclass(frozen=True, slots=True)
class Reply:
    """A well-formed answer; `call` names the function, else `text` is of the final channel."""

    text: str
    call: str = ""


def parse(tokens: Sequence[int], *, opens_final: bool) -> Reply | None:
    """Read an answer up to and with its stop token; None if it is not exactly as gpt-oss writes."""
    token_bytes = load_vocabulary().token_bytes
    data = b"".join(
        token_bytes[t] if t < FIRST_SPECIAL else _MARK_OF.get(t, _OTHER) for t in tokens
    )
    found = (_OPENED if opens_final else _ANSWER).fullmatch(data)
    if found is None:
        return None
    parts = found.groupdict()
    try:
        if parts.get("call") is not None:
            return Reply(parts["arguments"].decode(), parts["call"].decode())
        return Reply(parts["text"].decode())
    except UnicodeDecodeError:
        return None


def is_right(reply: Reply | None, branch: Branch) -> bool:
    """Whether the whole answer is as wanted; its analysis is free."""
    want = branch.answer
    if reply is None or reply.call != want.call:
        return False
    if want.call or branch.is_json:
        return _canonical(reply.text) == _canonical(want.text)
    return reply.text == want.text


def n_analysis_tokens(tokens: Sequence[int]) -> int:
    """How many tokens of reasoning a well-formed answer holds."""
    if END not in tokens:
        return 0
    return tokens.index(END) - tokens.index(MESSAGE) - 1


def _canonical(text: str) -> str | None:
    """Spell JSON in one way; 1, 1.0 and true stay three values, as `==` would not have it."""
    try:
        return json.dumps(json.loads(text), sort_keys=True)
    except (ValueError, RecursionError):
        return None
