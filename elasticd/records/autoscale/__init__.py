"""What an autoscaler reads and writes in etcd: the policy, its memory, the curve, its decisions."""
