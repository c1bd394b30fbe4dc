"""The runtime: token ids in, token ids out, in a process of its own.

Other layers import `client`, `interface` and `protocol`; `worker` owns llama.cpp and the GPU.
"""
