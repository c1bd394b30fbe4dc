"""The next token: `draw` samples it, from those that a `mask` allows; `logprobs` scores it."""
