"""The file in which a person writes a policy: TOML in, `Policy` out, or one sentence why not.

`document` reads the file, `parser` makes a policy of its text, `job_check` holds it against the
job that it is set for, `toml_text` writes a policy as such a file again. `key` lists all keys with
their defaults and meanings; `markdown` makes docs/policy-file.md of it. Only `document` does I/O.
"""
