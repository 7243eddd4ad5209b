"""What the processes of elasticd need of the network, whatever they talk about there.

It knows no records and no etcd: an agent's HTTP server and the dashboard's stand on it.
"""
