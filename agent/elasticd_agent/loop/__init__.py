"""The agent's owner thread: its inbox, its clock, its watchdog, and the thread of effects."""
