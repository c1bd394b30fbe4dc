"""The runtime, in a process of its own: token ids in, token ids out."""
