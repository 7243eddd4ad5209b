"""The talk of a worker with its agent: worlds come down, heartbeats go up."""
