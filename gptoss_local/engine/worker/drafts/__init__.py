"""Guesses of the next tokens, verified in one step where they pay by their `costs`."""
