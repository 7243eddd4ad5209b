"""Pictures of the guide: simulated jobs under the shipped rules.

`python -m elasticd.autoscale.gallery FOLDER` draws all of them. After a change of a rule they must
be drawn again; a test fails if they were not.
"""
