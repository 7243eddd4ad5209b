"""Numbers from a Prometheus, or from what speaks its HTTP API (Thanos, Mimir, VictoriaMetrics).

`client` is what others use. Pure are what an answer means (`answer`, `reading`), which series a
query rests on and how old they are (`selector`, `freshness`), and how queries are put together
(`batch`). `settings`, `credentials`, `session` and `evaluation` carry the questions over.
"""
