"""Conversation -> harmony tokens -> engine -> events.

The only layer that knows the harmony format: below it there are token ids, above it text. Every
dialect of the HTTP server turns its request into a ChatRequest and ChatEvents into its answer.
"""

from gptoss_local.chat.dissect import HarmonyPiece, dissect
from gptoss_local.chat.events import (
    ChatEvent,
    ContentDelta,
    Delta,
    Done,
    Prefilling,
    ReasoningDelta,
    Started,
    TokenLogprob,
    ToolCall,
    WholeAnswer,
)
from gptoss_local.chat.message import (
    AnswerFormat,
    ChatRequest,
    JsonFormat,
    Message,
    RawRequest,
    RegexFormat,
    Tool,
    ToolRequest,
)
from gptoss_local.chat.session import answer, n_prompt_tokens, prompt_tokens
from gptoss_local.chat.vocabulary import Vocabulary

__all__ = [
    "AnswerFormat",
    "ChatEvent",
    "ChatRequest",
    "ContentDelta",
    "Delta",
    "Done",
    "HarmonyPiece",
    "JsonFormat",
    "Message",
    "Prefilling",
    "RawRequest",
    "ReasoningDelta",
    "RegexFormat",
    "Started",
    "TokenLogprob",
    "Tool",
    "ToolCall",
    "ToolRequest",
    "Vocabulary",
    "WholeAnswer",
    "answer",
    "dissect",
    "n_prompt_tokens",
    "prompt_tokens",
]
