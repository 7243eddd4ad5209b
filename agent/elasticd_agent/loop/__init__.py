"""The agent's owner thread and what feeds it: one inbox, one courier, one clock."""
