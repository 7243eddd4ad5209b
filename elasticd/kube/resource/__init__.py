"""The resource ElasticJob (elasticd.dev/v1alpha1): what it says, and what it means. Pure.

`elastic_job` has it as dataclasses. `field` and `rule` are the one table of what may stand in it:
`crd` makes the CustomResourceDefinition of that, `check` the operator's own refusal with the
sentence that the command line would print, `markdown` the page for people. `job_spec` translates it
to elasticd's `JobSpec`, `job_status` writes the job's records as its status.
"""
