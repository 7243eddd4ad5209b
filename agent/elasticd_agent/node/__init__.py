"""This machine as a node: its slots, the jobs that want them, and what it says of itself."""
