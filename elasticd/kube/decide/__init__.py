"""What the operator does, as a pure function of what it sees: `decide`. Level-triggered.

`cluster` is all that is seen: objects and nodes of Kubernetes, records of etcd, and the little that
the operator remembers of what it did. `action` is all that it can do. Nothing depends on the order
in which things were seen, nor on having seen them change: an operator that starts now decides like
one that was there all the time. An action whose effect is seen is not requested again.
"""
