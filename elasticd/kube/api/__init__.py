"""The port to Kubernetes' API server and the two implementations of the port.

The operator uses `port` alone. `KubernetesApi` is the real implementation, and `MemoryApi` is its
counterpart for tests. The official client gives configuration, authentication and TLS. List and
watch are elasticd's own, because the client's informer fails on custom objects and reconnects
without a pause. No module of this package knows what an ElasticJob means.
"""
