"""The terminal chat (`gptoss chat`). Not built yet; `gptoss run` is the terminal front end."""
