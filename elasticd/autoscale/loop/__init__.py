"""The autoscaler's effects on etcd: the election, the reads of jobs, the writes.

One process leads, by a key under its lease; any number of others stand by. Every quarter of a
minute, the leader looks at all jobs that have a policy, asks the source for their metrics, lets
`decide` decide, and writes. Every write is one transaction that holds only while the election
holds, the job is the same and its policy has not changed. So a leader that was stopped for an hour
in the middle of an evaluation does no harm when it continues. All state is in etcd, except for
measurements that are in progress: the next leader starts these again.
"""
