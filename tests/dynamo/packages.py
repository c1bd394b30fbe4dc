"""NVIDIA Dynamo, which pip fetches (80 MB) on first use into the user's cache."""

from pathlib import Path

from tests.fetched import fetched

PACKAGES = ("ai-dynamo==1.6.1", "ai-dynamo-runtime==1.6.1", "uvloop")


def dynamo_packages() -> Path:
    """A folder for PYTHONPATH; skips the test if no package index has them for this machine."""
    return fetched("dynamo", *PACKAGES, options=("--no-deps",))
