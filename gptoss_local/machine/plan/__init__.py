"""Plans the place of a model on a machine: memory, speed, parameters. Pure: it loads nothing."""
