"""Numbers straight from the agents, where there is no Prometheus: `elasticd run --autoscale`.

Metrics of elasticd's own list by their names, and no PromQL: half of a language would answer half
of the questions, and some of them wrongly. A policy whose queries are PromQL works here too where
the name of each metric is one of the list: then that metric is meant.
"""
