"""The rules of a policy: pure functions that take numbers and return a proposal with a sentence.

`target` is the HPA's algorithm; `behavior` is the HPA's `behavior`: how soon and how fast a
proposal is followed. `query` fills in the PromQL of a policy. `goodput`, `deadline` and `budget`
use the curve (`elasticd.autoscale.curve`): `size_worth` compares two sizes, `size_trial` tries
sizes that no smooth curve predicts, `remaining_run` estimates the rest of a job at each size.
`idle` keeps a job small while it has no work.
"""
