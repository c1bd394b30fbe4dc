"""Reads what the machine has: processor, memory, GPUs, and the limits of a container."""
