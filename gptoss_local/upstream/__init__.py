"""Engines elsewhere, over HTTP: they take a prompt's token ids and stream the answer's.

`gptoss_local.harmony` uses `client.Upstream` as it uses an engine process.
"""
