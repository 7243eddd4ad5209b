"""This node's standing in etcd: its lease, who may write, and the links to other agents."""
