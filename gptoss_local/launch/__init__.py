"""Programs that `gptoss launch` starts: what they need, and how their settings files change."""
