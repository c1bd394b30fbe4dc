"""Errors, settings, types and formats, for every room."""
