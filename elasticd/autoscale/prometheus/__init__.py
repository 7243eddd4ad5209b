"""Reads numbers from a Prometheus, or a server with its HTTP API (Thanos, Mimir, VictoriaMetrics).

Other packages use `client`. These modules are pure: `answer` and `query_value` interpret an answer,
`selector` and `freshness` find a query's series and their ages, and `batch` joins queries.
`settings`, `credentials`, `session` and `evaluation` send the queries.
"""
