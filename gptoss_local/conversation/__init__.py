"""A branch of a saved chat as a request of `/api/chat`, and the frames of its answer as a turn.

The terminal chat and the web page's answers share it, so that their turns are alike.
"""

from gptoss_local.conversation.answer import Answer
from gptoss_local.conversation.request import messages_of, request_of, was_cut
from gptoss_local.conversation.stored import changes_of

__all__ = ["Answer", "changes_of", "messages_of", "request_of", "was_cut"]
