"""The second holder of a sharded state: shares are sent to the keeper of the next node."""
