"""Runs models: plans and loads them, lets their context grow, and measures them. No HTTP here."""
