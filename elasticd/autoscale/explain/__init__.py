"""What the autoscaler's records say, in sentences and rows for people.

The commands (`elasticd why`, `elasticd top`), the dashboard and bundles all take their words from
here, so that they say the same. Nothing here reads or writes anything, and nothing imports numpy.
"""
