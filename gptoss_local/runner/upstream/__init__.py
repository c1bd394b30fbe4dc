"""Remote engines over HTTP: they take a prompt's token ids and stream the answer's."""
