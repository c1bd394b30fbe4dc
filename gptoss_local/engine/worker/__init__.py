"""The engine process: `process` is its main loop and `engine` computes one step."""
