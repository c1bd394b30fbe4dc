"""Conversation -> harmony tokens -> engine -> events.

The only layer that knows the harmony format: token ids below it, text above it.
"""

from gptoss_local.base.events import (
    GAP,
    CallDelta,
    ChatEvent,
    ContentDelta,
    Delta,
    Done,
    Growing,
    Prefilling,
    ReasoningDelta,
    Started,
    TokenDelta,
    TokenLogprob,
    ToolCall,
    WholeAnswer,
)
from gptoss_local.harmony.budget import text_size
from gptoss_local.harmony.inspection import inspect_tokens
from gptoss_local.harmony.message import (
    AnswerFormat,
    AnswerNow,
    ChatRequest,
    FreeText,
    JsonFormat,
    Message,
    RawRequest,
    RegexFormat,
    Tool,
    ToolRequest,
)
from gptoss_local.harmony.session import answer, n_prompt_tokens, prompt_tokens
from gptoss_local.harmony.vocabulary import Vocabulary, load_vocabulary
