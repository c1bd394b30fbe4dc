"""The KV cache: who has which cells (`slots`), and the prefixes of sequences that ended.

`prefix_cache` finds the longest prefix of a prompt that is kept, in memory with its `checkpoints`
or on disk (`archive`, `prefix_store`). `prefetch` reads prompts while the engine is idle.
"""
