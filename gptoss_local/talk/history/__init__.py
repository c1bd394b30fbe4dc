"""All chats in one SQLite file, searchable, with no knowledge of terminals, HTTP or models."""

from gptoss_local.talk.history.chats import History, is_temporary
from gptoss_local.talk.history.export import Exported, parse_exports, read_export, unpacked
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
    "is_temporary",
    "parse_exports",
    "read_export",
    "unpacked",
]
