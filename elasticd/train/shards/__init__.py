"""What the living ranks still have of a sharded state, and how each gets its own part again."""
