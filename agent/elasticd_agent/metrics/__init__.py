"""What an agent counts of its jobs and its node, and what it answers to a scrape of Prometheus.

The owner's thread counts (`job_meter`) and hands over immutable readings; samples are made of them
(`job_samples`, `node_samples`) and written (`scrape`) on the thread of whoever scrapes.
"""
