"""The rules of a policy: pure functions, numbers in, a proposal with a sentence out.

`target` is the HPA's algorithm; `behavior` is the HPA's `behavior`: how soon and how fast a
proposal is followed. `query` fills in the PromQL of a policy. `goodput`, `deadline` and `budget` go
by the curve (`elasticd.autoscale.curve`): `size_worth` compares two sizes, `size_trial` tries sizes
that no smooth curve predicts, `whole_run` says what the rest of a job takes at each size. `idle`
keeps a job small that has no work.
"""
