"""The tool `python`: in a sandbox, or in the user's Jupyter kernel."""

from gptoss_local.talk.tools.python.source import Python

__all__ = ["Python"]
