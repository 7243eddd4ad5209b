"""What a run does: the faults that exist, a scenario of them, and the schedule that a seed draws.

All of it is pure, and imports nothing of elasticd.
"""
