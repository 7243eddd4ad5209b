"""The records of what happened: changes of world, progress, and where the time went."""
