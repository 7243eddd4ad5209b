"""Facts become state: what etcd, the workers and the other nodes told. Pure."""
