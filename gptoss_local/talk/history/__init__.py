"""All chats in one SQLite file, searchable, with no knowledge of terminals, HTTP or models."""

from gptoss_local.talk.history.chats import History, is_temporary
from gptoss_local.talk.history.export import Exported, exported_in, read_export
from gptoss_local.talk.history.rows import ChatSummary, Hit, Role, Turn, TurnState
from gptoss_local.talk.history.schema import check_file
from gptoss_local.talk.history.search import MATCH_END, MATCH_START
from gptoss_local.talk.history.watch import News, Watch

__all__ = [
    "MATCH_END",
    "MATCH_START",
    "ChatSummary",
    "Exported",
    "History",
    "Hit",
    "News",
    "Role",
    "Turn",
    "TurnState",
    "Watch",
    "check_file",
    "exported_in",
    "is_temporary",
    "read_export",
]
