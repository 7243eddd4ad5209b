"""Checkpoints: what stands in object storage, who writes it, and how it is read back.

One rule carries the rest: an object, once written, never changes, and nothing counts before an
entry of the numbered log names it. So a crash at any byte leaves objects that nobody refers to, a
late writer finds its number taken, and a reader needs no listing, no rename and no etcd.

Three kinds of processes take part. A worker copies its share of the state into shared memory
(`elasticd.train.saving`). The keeper, one process per job and node, outlives the worker: it uploads
what is in that memory, commits, restores and deletes. Anybody with the URL may read: the command
`elasticd checkpoint` does.

Nothing in here but what a script calls imports torch.
"""

__all__: list[str] = []
