"""The table of an ElasticJob's fields, and everything that is derived from it. Pure.

`field` has the fields, `rule` the rules between them. `check` finds the error in an object, with
the sentence that the command line would print; `crd` makes the CustomResourceDefinition (as text by
`yaml_text`), and `markdown` makes the page for people.
"""
