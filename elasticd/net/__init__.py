"""The network parts that several processes of elasticd need, whatever they talk about.

They know no records and no etcd: an agent's HTTP server and the dashboard's use them.
"""
