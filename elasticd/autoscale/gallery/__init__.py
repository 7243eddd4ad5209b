"""Pictures of what the rules did to simulated jobs: those of the guide, made by the shipped rules.

`python -m elasticd.autoscale.gallery FOLDER` draws all of them. Whoever changes a rule runs it
again; a test says when that was forgotten.
"""
