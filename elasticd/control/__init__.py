"""The actions of commands on a cluster, without the command line.

This package submits, resizes, stops and follows jobs, drains nodes, reads why a job stopped, and
starts a private cluster on one machine. The command line above it parses and prints; no module here
prints, reads the environment or knows a flag. Below it are only the store and the records: it
reaches agents through etcd, through their log servers and as child processes, never by import.
"""
