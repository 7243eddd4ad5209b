"""The records in etcd, their keys and their JSON form.

Pure: no clock, no randomness, no thread, no socket, no third party. A record is frozen; to change
one, a new one is written. `keys` is the only module that spells a key, `codec` the only one that
knows the bytes.
"""
