"""Translates the dialects that clients speak: a package for each, and their common parts."""
