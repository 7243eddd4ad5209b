"""The port to Kubernetes' API server and what stands behind it.

`port` is all that the operator uses; `KubernetesApi` is the real thing, `MemoryApi` its twin for
tests. The official client gives configuration, authentication and TLS. List and watch are our own,
because its informer fails on custom objects and reconnects without a pause. Nothing here knows what
an ElasticJob means.
"""
