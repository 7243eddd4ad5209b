"""Turns the autoscaler's records into sentences and rows for people.

The commands (`elasticd why`, `elasticd top`), the dashboard and bundles all use these sentences, so
that they agree. No module here does any I/O, and none imports numpy.
"""
