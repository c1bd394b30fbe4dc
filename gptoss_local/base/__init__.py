"""What every room may use: errors, settings, types, formats."""
