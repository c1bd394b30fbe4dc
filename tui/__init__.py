"""The terminal chat, `gptoss chat`: a client of the server, built with Textual."""
