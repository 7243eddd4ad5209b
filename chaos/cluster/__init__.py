"""Chaos in a cluster of somebody's own: breaks pods and workers of one job, within limits.

It runs as a Job of that cluster (deploy/kustomize/chaos), with the rights of its own Role, so it
sees only what the API server says: pods, and the status of an ElasticJob. Every fault either needs
no undoing (a DaemonSet makes a deleted pod anew, an agent starts a killed worker anew) or is undone
by a process inside the pod that was struck. So nothing stays broken when this Job is deleted or
dies, and there is no kind of fault that would have to be taken back from outside (no cordon, no
scale).

Pure: `fault`, `observation`, `recovery`, `decide` and `verdict`, which import nothing of elasticd.
`plan` draws by a seed, `in_pod` is the program that runs inside a pod, `pod_exec` runs it there,
`cluster_api` asks the API server, `run` is the loop. Nothing here imports torch: it is part of the
image without.
"""
