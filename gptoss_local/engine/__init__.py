"""The runtime: token ids in, token ids out, in a process of its own.

`client` runs in the server (asyncio) and is all that other layers may import, with `protocol`;
the rest runs in the engine process, which owns llama.cpp and the GPU: `process` (main loop),
`engine` (one step), `scheduler` (who runs, with `pace`), `slots` (who has which cells),
`prefix_cache` (what is kept of ended sequences, with `checkpoints`, `prefetch` and the `archive`
on disk), `draw` (the next tokens, as a `mask` allows), `sequence`.
Nothing here knows text.
"""
