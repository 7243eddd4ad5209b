"""One job's workers on this node: their processes and their ends."""
