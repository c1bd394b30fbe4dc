"""The built-in tool `browser`: search, open and find, as gpt-oss was trained to use them.

`browser` runs the calls, `stack` numbers pages by cursors, `view` is the layout that the model
sees. `fetching` gets the page of a URL, and `addresses` says which addresses may be reached.
`reader` turns it into text in a process of its own. `searching` asks search engines.
"""

from gptoss_local.talk.tools.browser.browser import Browser

__all__ = ["Browser"]
