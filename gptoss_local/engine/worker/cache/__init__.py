"""The KV cache: cells (`slots`), prefixes of ended sequences, and prefetching while idle."""
