"""The resource ElasticJob (elasticd.dev/v1alpha1): its fields, and their meaning. Pure.

`elastic_job` defines it as dataclasses, with its `spec` and `status`; `json_form` converts these to
and from the API's JSON. `schema` is the one table of the allowed fields. `job_spec` translates an
object to elasticd's `JobSpec`; `job_status` translates the job's records to a status.
"""
