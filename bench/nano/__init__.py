"""How nano is made: conversations (`data`), training (`train`), packing, and what it can do."""
