"""The policy file that a person writes: TOML in, a `Policy` or one sentence about an error out.

`document` reads the file, `parser` makes a policy of its text, `job_check` compares it with the job
for which it is set, and `toml_text` writes a policy as such a file. `key` lists all keys with their
defaults and meanings; `markdown` makes docs/policy-file.md of it. Only `document` does I/O.
"""
