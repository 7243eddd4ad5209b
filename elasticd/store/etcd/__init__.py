"""The store on a real etcd: one connection, its calls, leases, transactions and watches."""
