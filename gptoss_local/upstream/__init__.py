"""Engines elsewhere, over HTTP: they take a prompt's token ids and stream those of the answer.

`client.Upstream` is to `gptoss_local.harmony` what an engine process is.
"""
