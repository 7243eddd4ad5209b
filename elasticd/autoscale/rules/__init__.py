"""The rules of a policy: pure functions, numbers in, a proposal with a sentence out.

`target` is the HPA's algorithm; `behavior` is the HPA's `behavior`: how soon and how fast a
proposal is followed. `query` fills in the PromQL of a policy.
"""
