"""Reads metrics from the agents themselves, without a Prometheus (`elasticd run --autoscale`).

Queries are names of metrics in elasticd's own list. There is no PromQL: a part of the language
would answer some queries, and some of them wrongly. A policy whose queries are PromQL works here
too if the name of each metric is one of the list: then the query is read as that metric.
"""
