"""The numbers that a script gives to `commit`: for the heartbeat, and for TensorBoard."""
