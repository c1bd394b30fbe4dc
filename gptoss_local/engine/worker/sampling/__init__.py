"""The next token: `draw` samples and scores it, from those that a `mask` allows."""
