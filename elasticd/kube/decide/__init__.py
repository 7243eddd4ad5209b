"""The operator's decisions, as a pure function of the observed cluster: `decide`. Level-triggered.

`cluster` has all that the operator observes: objects and nodes of Kubernetes, records of etcd, and
a short memory of the operator's own actions. `action` has all that the operator can do. A decision
does not depend on the order in which objects were read, or on whether the operator saw them change:
an operator that has just started decides like one that ran all the time. The operator does not
request an action again once it has observed the effect.
"""
