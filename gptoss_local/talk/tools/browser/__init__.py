"""The built-in tool `browser`: search, open and find, as gpt-oss was trained to use them.

`browser` runs the calls, `view` lays pages out, `fetching` gets them, and `reader` turns them into
text in a process of its own.
"""

from gptoss_local.talk.tools.browser.browser import Browser

__all__ = ["Browser"]
