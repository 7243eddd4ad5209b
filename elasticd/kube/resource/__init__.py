"""The resource ElasticJob (elasticd.dev/v1alpha1): what it says, and what it means. Pure.

`elastic_job` has it as dataclasses, with its `spec` and `status`; `json_form` is their form in the
API. `schema` is the one table of what may stand in it. `job_spec` translates it to elasticd's
`JobSpec`, `job_status` writes the job's records as its status.
"""
