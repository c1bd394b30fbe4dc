"""The parts of the chat screen, one widget per file. They show values and send messages up."""
