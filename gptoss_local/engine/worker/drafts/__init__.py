"""Guesses of the next tokens, verified in one step: made where they pay by their `costs`."""
