"""One file with what a colleague needs to find out why a job went wrong.

It is put together from the records of a job, from what its agents still know, and from the files
that they and the workers wrote (`job_files`); what cannot be had is named in it. The values of
variables and options are masked (`mask`, `secret`) before anything is written. Unpacked, it holds a
run folder that `elasticd why`, `elasticd status`, `elasticd logs` and `elasticd dashboard` read as
they read any other.
"""

__all__: list[str] = []
