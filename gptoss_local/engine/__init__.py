"""The runtime: token ids in, token ids out, in a process of its own.

`client` runs in the server (asyncio). With `protocol`, the frames between the two processes, it is
all that other layers import. `worker` is the engine process, which owns llama.cpp and the GPU.
Nothing here knows text.
"""
