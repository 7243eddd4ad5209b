"""elasticd on Kubernetes: the resource ElasticJob, and the operator that submits its jobs.

No module of this package imports torch, and only the process of the operator imports the
`kubernetes` client, inside functions, because that import takes half a second and 77 MB.
"""
