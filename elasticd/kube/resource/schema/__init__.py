"""What may stand in an ElasticJob, as one table, and all that is made of it. Pure.

`field` has the fields, `rule` what holds between them. `check` is the operator's refusal, with the
sentence that the command line would print, `crd` the CustomResourceDefinition (as text by
`yaml_text`), `markdown` the page for people.
"""
