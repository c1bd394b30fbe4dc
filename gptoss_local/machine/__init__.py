"""Reads the machine's processor, memory, GPUs, and the limits of a container."""
