"""What the chat looks like: the cases, and how a screen becomes text."""
