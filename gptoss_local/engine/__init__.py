"""The runtime: token ids in, token ids out, in a process of its own.

`client` runs in the server (asyncio) and is all that other layers may import, with `protocol`;
`process`, `engine` and `sequence` run in the engine process, which owns llama.cpp and the GPU.
Nothing here knows text.
"""
