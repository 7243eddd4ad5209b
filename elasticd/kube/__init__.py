"""elasticd on Kubernetes: the resource ElasticJob, and the operator that makes jobs of it.

Nothing here imports torch, and only the process of the operator imports the `kubernetes` client,
inside functions: that import takes half a second and 77 MB.
"""
