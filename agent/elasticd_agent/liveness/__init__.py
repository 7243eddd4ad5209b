"""Whether workers live and make progress: heartbeats, /proc, hangs and stacks."""
