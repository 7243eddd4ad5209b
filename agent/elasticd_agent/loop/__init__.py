"""The agent's owner thread and what feeds it: one inbox, one effect_thread, one clock."""
