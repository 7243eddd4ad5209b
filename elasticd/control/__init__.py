"""What commands do to a cluster, without the command line.

Submitting, resizing, draining and stopping jobs, following one, reading back why it stopped, and
starting a private cluster on one machine. The command line above it parses and prints; nothing in
here prints, reads the environment or knows a flag. Below it are only the store and the records: the
agents are reached through etcd, their log servers and as child processes, never by import.
"""
