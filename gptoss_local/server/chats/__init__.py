"""Saved chats for the web page: their file, its changes, and answers that outlive a tab."""

from gptoss_local.server.chats.answers import Answers
from gptoss_local.server.chats.changes import Changes, ChatStore

__all__ = ["Answers", "Changes", "ChatStore"]
