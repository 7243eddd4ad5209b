"""Whether what had to hold held, and the report that says so.

`invariants` judges the history of the ranks, `account` what elasticd says of its own time, `saved`
the checkpoints in storage. `report` writes it down for people and machines.
"""
