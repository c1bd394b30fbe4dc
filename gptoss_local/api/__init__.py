"""Our own wire: its client."""
