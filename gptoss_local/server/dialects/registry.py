"""All dialects, in the order in which they are asked whether a path is theirs."""

from gptoss_local.server.dialects.anthropic.dialect import ANTHROPIC
from gptoss_local.server.dialects.gptoss.dialect import GPTOSS
from gptoss_local.server.dialects.ollama.dialect import OLLAMA
from gptoss_local.server.dialects.openai.dialect import OPENAI

DIALECTS = (GPTOSS, ANTHROPIC, OPENAI, OLLAMA)
