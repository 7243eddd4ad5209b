"""What was seen: the records of ranks and runner, and what can be computed from them alone.

`records` are written while the run goes on and `tail` reads them meanwhile; `lineage` says which
steps count, and `recovery` how long the job stood still. Nothing here imports elasticd.
"""
