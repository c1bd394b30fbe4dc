"""Remote engines over HTTP: they take a prompt's token ids and stream the answer's.

`gptoss_local.harmony` uses `client.Upstream` like an engine process.
"""
