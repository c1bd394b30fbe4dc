"""The chat screen and the dialogs over it."""
