"""The web page, as a browser gets it; `server/dialects/gptoss/page` serves it."""

from pathlib import Path

FOLDER = Path(__file__).parent
