"""A conversation: its turns, where they are saved, and the tools that it may use."""
