"""Fresh TCPStores of a pool: a process that keeps them listening, and the pool's side of it."""

__all__: list[str] = []
