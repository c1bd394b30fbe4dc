"""The HTTP server: one file per dialect over the chat layer, and the models it keeps loaded."""
