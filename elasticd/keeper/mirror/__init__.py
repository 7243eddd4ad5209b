"""The second holder of a sharded state: shares go to the keeper of the next node."""
