"""A training document: a shared context, and branches that each ask something of it.

Agents send the same ten thousand tokens of instructions and tools before every question. A document
holds them once, with many independent questions behind it; each branch sees the context and itself,
as if the others did not exist. The prompt of every branch is rendered by the code that serves real
requests, so that the model is trained on exactly what it will be asked.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from bench.nano.data.respell import Read, respell
from gptoss_local.base.types import Effort
from gptoss_local.harmony import load_vocabulary
from gptoss_local.harmony.budget import TokenBudget
from gptoss_local.harmony.message import ChatRequest, JsonFormat, Message, Tool
from gptoss_local.harmony.parts import Part
from gptoss_local.harmony.render import IDENTITY, render_chat, system_text
from gptoss_local.harmony.vocabulary import START

N_START = 2  # `<|start|>assistant`, which ends every rendered prompt
_ESCAPE = re.compile(r'(\\(?:["\\/bfnrt]|u[0-9a-f]{4}))')  # RFC 8259, section 7


@dataclass(frozen=True, slots=True)
class Answer:
    """What the model must say.

    `text` is the content of the final channel or, if `call` names a function, the JSON arguments.
    """

    text: str
    analysis: str = ""
    call: str = ""


def thought(effort: Effort, thoughts: Sequence[str], **slots: object) -> str:
    """Fill the analysis of a medium or a high effort; a low one has none."""
    return "" if effort == "low" else thoughts[effort == "high"].format(**slots)


@dataclass(frozen=True, slots=True)
class Branch:
    """One question and its answer.

    Attributes:
        skill: Under which name the answer is counted.
        messages: What follows the context; the last one is of the user or of a tool.
        is_json: Compare the answer as JSON, not as text (calls always are).
        opens_final: The prompt opens the final channel, so there is no room for analysis.
    """

    skill: str
    messages: tuple[Message, ...]
    answer: Answer
    is_json: bool = False
    opens_final: bool = False


@dataclass(frozen=True, slots=True)
class Document:
    """A context and its branches.

    Attributes:
        date: What the system message says, as YYYY-MM-DD; none leaves the line out.
        instructions: The developer's, may be empty.
        context: Messages between instructions and branches: finished turns, a file, a long text.
        format: The schema of final answers, which the developer message tells.
    """

    effort: Effort
    branches: tuple[Branch, ...]
    date: str = ""
    identity: str = ""
    instructions: str = ""
    tools: tuple[Tool, ...] = ()
    context: tuple[Message, ...] = ()
    format: JsonFormat | None = None


@dataclass(frozen=True, slots=True)
class BranchTokens:
    """Token ids of one branch: the prompt's after the context, and the answer's."""

    prompt: list[int]
    target: list[int]


def encode_document(document: Document) -> tuple[list[int], list[BranchTokens]]:
    """Render a document.

    Returns:
        Token ids of the context, and of every branch behind it.
    """
    vocabulary = load_vocabulary()
    system = Message(role="system", content=document.instructions)
    messages = ((system,) if document.instructions else ()) + document.context
    question = Message(role="user")  # or else an answer at the end would stand open
    request = ChatRequest(
        messages=(*messages, question),
        tools=document.tools,
        format=document.format,
        earlier_tokens=tuple(_system_tokens(document)),
    )
    rendered = render_chat(request, vocabulary)
    context = rendered[: [i for i, token in enumerate(rendered) if token == START][-2]]
    read = Read(context)
    return context, [_encode_branch(branch, context, read) for branch in document.branches]


def _encode_branch(branch: Branch, context: list[int], read: Read) -> BranchTokens:
    request = ChatRequest(
        messages=branch.messages,
        reasoning=not branch.opens_final,
        earlier_tokens=tuple(context[-1:]),  # any token: an earlier part needs no system message
    )
    prompt = render_chat(request, load_vocabulary())[1:]
    target = encode_answer(branch.answer, opens_final=branch.opens_final)
    return BranchTokens(prompt, respell(target, Read(prompt), read))


def encode_answer(answer: Answer, *, opens_final: bool) -> list[int]:
    """Spell an answer as gpt-oss emits it, up to and with its stop token.

    Escapes in the arguments of a call are tokens of their own. The tokenizer would spell a line
    that begins with "socket" as `\\`, `ns`, `ocket`, which nothing that was read looks like.
    """
    vocabulary = load_vocabulary()
    if opens_final:
        return vocabulary.encode(answer.text) + vocabulary.encode_tagged("<|return|>")
    tokens: list[int] = []
    if answer.analysis:
        tokens += vocabulary.encode_tagged("<|channel|>analysis<|message|>")
        tokens += vocabulary.encode(answer.analysis)
        tokens += vocabulary.encode_tagged("<|end|><|start|>assistant")
    if answer.call:
        header = f"commentary to=functions.{answer.call} <|constrain|>json"
        tokens += vocabulary.encode_tagged(f"<|channel|>{header}<|message|>")
    else:
        tokens += vocabulary.encode_tagged("<|channel|>final<|message|>")
    for part in _ESCAPE.split(answer.text) if answer.call else (answer.text,):
        tokens += vocabulary.encode(part)
    return tokens + vocabulary.encode_tagged("<|call|>" if answer.call else "<|return|>")


def _system_tokens(document: Document) -> list[int]:
    text = system_text(document.effort, document.date)
    if not document.date:
        text = text.replace("\nCurrent date: ", "")
    if document.identity:
        text = text.replace(IDENTITY, document.identity)
    part = Part("system", text)
    return load_vocabulary().rendered.tokens(part, TokenBudget()).tolist()
