"""The commands that start daemons: the agent and the operator."""
