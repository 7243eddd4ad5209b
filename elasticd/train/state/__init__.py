"""The state: what must survive a change of world, and the way back to the last commit."""
