"""The autoscaler's effects on etcd: who leads, what it reads of jobs, how it writes.

One process leads, by a key under its lease; any number stand by. The leader looks at all jobs that
have a policy every quarter of a minute, asks the source for their metrics, lets `decide` decide,
and writes. Every write is one transaction that holds only while that election stands, the job is
the same one and its policy is unchanged: a leader that was stopped for an hour in the middle of an
evaluation can do no harm when it goes on. Nothing is kept that is not in etcd, but measurements
that are under way: whoever leads next begins those anew.
"""
