"""What an answer may look like -> one grammar over its harmony tokens, tags and all.

Analysis stays free, the final message is what the format says, and a call of a function is a JSON
object. The engine masks tokens with it and knows neither harmony nor JSON.

Source: the harmony format as openai-harmony renders it, and the headers that real models write
(recipient before or after the channel, `<|constrain|>json` or none). Lark as llguidance reads it,
where a regular expression never matches a tag.
"""

import json
from collections.abc import Sequence
from typing import Any

import llguidance

from gptoss_local.chat.message import AnswerFormat, JsonFormat, Tool
from gptoss_local.errors import UsageError

_REASON_MAX = 300  # characters
_ANSWER = """
start: (analysis turn)* last
last: final {call}
turn: <|start|> "assistant"
analysis: <|channel|> "analysis" <|message|> TEXT <|end|>
final: <|channel|> "final" typed? <|message|> @body <|return|>
typed: " "? <|constrain|> /[Jj][Ss][Oo][Nn]/
TEXT: /(.|\\n)*/
"""
_OPEN_ANSWER = "start: @body <|return|>"
_CALL = """
call: (<|channel|> "commentary" to | to <|channel|> "commentary") kind? <|message|> @object <|call|>
preamble: <|channel|> "commentary" <|message|> TEXT <|end|>
to: " to=functions." NAME
kind: typed | " json"
NAME: {names}
"""

# What printers of JSON write between two values. With any amount, a model that is lost in a format
# would put whitespace there until its context is full.
_OPTIONS = {"whitespace_flexible": True, "whitespace_pattern": r"[ \t]{1,2}|\r?\n[ \t]{0,40}"}


def compile_grammar(
    answer_format: AnswerFormat, tools: Sequence[Tool] = (), *, opens_final: bool = False
) -> str:
    """Make the grammar of an answer and check it.

    Args:
        answer_format: What the final message is; with tools the model may call one instead.
        tools: Functions that may be called.
        opens_final: The answer is the final message alone, whose header the prompt holds.

    Raises:
        UsageError: llguidance cannot enforce it; the reason names the keyword.
    """
    grammars: list[dict[str, Any]] = [{"name": "body", **_body(answer_format)}]
    if opens_final:
        top = _OPEN_ANSWER
    elif tools:
        names = " | ".join(json.dumps(tool.name, ensure_ascii=False) for tool in tools)
        call = "| (preamble turn (analysis turn)*)? call"
        top = _ANSWER.format(call=call) + _CALL.format(names=names)
        grammars.append({"name": "object", **_json_schema({"type": "object"})})
    else:
        top = _ANSWER.format(call="")
    grammar = json.dumps({"grammars": [{"name": "top", "lark_grammar": top}, *grammars]})
    is_error, messages = llguidance.LLMatcher.validate_grammar_with_warnings(grammar)
    if is_error:
        reason = " ".join(messages[0].split())[-_REASON_MAX:]  # of a regex, the end says what
        raise UsageError(
            f"the format cannot be enforced: {reason}",
            hint="Simplify the JSON schema: leave out, or express otherwise, what is named above.",
        )
    return grammar


def _body(answer_format: AnswerFormat) -> dict[str, Any]:
    if isinstance(answer_format, JsonFormat):
        return _json_schema(answer_format.schema)
    grammar = json.loads(llguidance.LLMatcher.grammar_from_regex(answer_format.pattern))
    return {"lark_grammar": grammar["grammars"][0]["lark_grammar"]}


def _json_schema(schema: dict[str, Any]) -> dict[str, Any]:
    return {"json_schema": schema | {"x-guidance": _OPTIONS}}
