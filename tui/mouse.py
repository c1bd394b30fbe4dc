"""Gives the mouse to the app, or to the terminal, which then selects text with it."""

from typing import Any

from textual.app import App


def set_mouse(app: App[Any], is_on: bool) -> None:
    """Give the mouse to the app, or back to the terminal, for as long as the app runs."""
    driver: Any = app._driver  # Textual decides it at the start and has no call for later
    if hasattr(driver, "_disable_mouse_support"):
        driver._disable_mouse_support()
        driver._mouse = is_on  # for when the app comes back from the background
        driver._enable_mouse_support()
