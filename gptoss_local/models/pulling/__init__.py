"""Download models: the hub, the converter and the store joined, in a process of its own."""
