"""The rules of a policy, each a function from what was seen to a proposal. All of them are pure."""
