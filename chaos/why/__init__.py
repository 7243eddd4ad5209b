"""Whether `elasticd why` tells the truth: what it said while the run went on, and what was done.

`watch` reads what `why` shows, `expectation` says for each kind of fault what a right word for it
is, `rule` and `goodput` compare. The last three are pure and import nothing of elasticd.
"""
