"""Which world comes next, and why. Pure."""
