"""The next token: `draw` samples and scores it, among the tokens that a `mask` allows."""
