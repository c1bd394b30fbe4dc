"""Endpoints of our own."""
