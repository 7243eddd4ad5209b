"""A private etcd for the runs of one machine: the program, its process, its folder and its log."""
