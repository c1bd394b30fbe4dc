"""Models on disk, and how they get there."""
