"""Makes one file that contains all that a colleague needs to find out why a job went wrong.

A bundle is made of the records of a job, of the facts that its agents have in memory, and of the
files that the agents and the workers wrote (`job_files`); the bundle lists the parts that could not
be read. The values of variables and options are masked (`mask`, `secret`) before anything is
written. An unpacked bundle is a run folder, which `elasticd why`, `elasticd status`, `elasticd
logs` and `elasticd dashboard` read like any other.
"""

__all__: list[str] = []
