"""Product files of fewer lines than the rule allows, each with the reason why it stands alone.

The reason must be true of that very file. `tests/unit/test_house.py` fails for a short file that is
not here, and for one that is here and is short no more, or gone. An `__init__.py` that only
documents its room does not count as a file.
"""

__all__ = ["SHORT_FILES"]

_ENTRY_POINTS = {
    "elasticd/__main__.py": "`python -m elasticd` is an address that users type.",
    "elasticd/autoscale/gallery/__main__.py": "`python -m` draws the pictures of the guide.",
    "elasticd/cli/init_process.py": "It is imported before all else, so it has nothing else.",
    "elasticd/cli/__main__.py": "`elasticd run` starts the agents of its machine by this module.",
    "elasticd/cli/autoscale/group.py": "The group of commands must not import the commands.",
    "elasticd/cli/checkpoints/command.py": "The group of commands must not import the commands.",
    "elasticd/kube/resource/__main__.py": "`python -m` writes the CRD and the page of its fields.",
}
"""What is started or called by its name, and only leads on."""

_COMMANDS = {
    "elasticd/cli/autoscale/unset.py": "Each sub-command has a file of its own.",
    "elasticd/cli/autoscale/running_job.py": "Two sub-commands ask for the same report.",
    "elasticd/cli/bundle/checkpoints.py": "It alone in the room reads a bucket.",
    "elasticd/cli/daemons/listen_address.py": "Two daemons have the same flag.",
    "elasticd/cli/jobs/options.py": "All commands of the room have these flags.",
    "elasticd/cli/label_flags.py": "Commands of two rooms read labels.",
    "elasticd/cli/run/autoscaler/policy.py": "It reads the file, for the flags and the run.",
    "elasticd/cli/secrecy.py": "Four commands hide their process, and are in three rooms.",
    "elasticd/cli/views/runs.py": "Both views open their sources anew by it.",
    "elasticd/cli/views/sentences.py": "Views get words of other commands by it, and by it alone.",
}
"""What several commands of the command line have in common, or a command that does little."""

_RECORDS_AND_ERRORS = {
    "chaos/error.py": "All of chaos raises these, and imports nothing else for it.",
    "elasticd/autoscale/proposal.py": "Each rule makes one, without what composes them.",
    "elasticd/records/autoscale/leader.py": "Each record in etcd has a file of its own.",
    "elasticd/records/node_name.py": "Three packages translate the names of nodes by it.",
    "elasticd/records/tensorboard.py": "A part of a job's spec that other records lack.",
    "elasticd/train/group_broken.py": "Rooms that may not import each other raise and catch it.",
    "elasticd/train/introspection/time_spent.py": "Four rooms add to it, and none of them owns it.",
    "elasticd/train/restore/restore_result.py": "`restore` makes it, and `run` tells it.",
}
"""One noun without behaviour, that many import."""

_PORTS = {
    "agent/elasticd_agent/http_server/answer.py": "Whatever answers over HTTP imports it alone.",
    "agent/elasticd_agent/metrics/sources.py": "It is light: an agent has it before any metric.",
    "elasticd/channel/wire.py": "The agent's, the worker's and the keeper's messages share it.",
    "elasticd/checkpoint/storage/forwarding_bucket.py": "Buckets of two packages are based on it.",
    "elasticd/checkpoint/storage/gcs.py": "Only where a bucket is Google's may gcsfs be imported.",
    "elasticd/keeper/save/cancellable_bucket.py": "It is a bucket; it knows no keeper.",
    "elasticd/store/sink.py": "Watches of etcd, of Kubernetes and in memory use it.",
    "elasticd/train/save/keeper_connection.py": "`Checkpoints` and `save` reach the keeper by it.",
    "elasticd/train/tcp_store/key_wait.py": "All exchanges of the room wait by it.",
}
"""A port or a protocol, or one thin thing behind a port."""

_PURE_RULES = {
    "elasticd/autoscale/direct/scrape.py": "It is pure, and its neighbours talk to agents.",
    "elasticd/autoscale/explain/leader_text.py": "It speaks of the leader, all others of a job.",
    "elasticd/autoscale/loop/queries.py": "It is pure, and five commands ask it.",
    "elasticd/autoscale/rules/size_range.py": "Five rules ask it.",
    "elasticd/control/logs/log_tail.py": "It is pure: it is given how to read a log.",
    "elasticd/control/near_names.py": "Jobs and nodes are both guessed by it.",
    "elasticd/keeper/mirror/pacing.py": "It is pure, with the clock as an argument.",
    "elasticd/kube/api/backoff.py": "Watches and writes of the operator wait by it.",
    "elasticd/kube/resource/plain_text.py": "The resource and what is sent of it both use it.",
    "elasticd/net/cpu_share.py": "It counts CPU time, and knows no HTTP.",
    "elasticd/train/save/step_times.py": "It only counts, and is tested without a snapshot.",
    "elasticd/train/session/first_commit.py": "It lives for one commit, the session for all.",
    "elasticd/train/data/selection.py": "It knows torch's `Subset`, the loader any dataset.",
    "chaos/jobs/task.py": "All jobs of the fault runner train on it.",
    "chaos/jobs/call.py": "All jobs of the fault runner are called in the same way.",
}
"""One rule, that several ask or that is pure where its neighbours are not."""

_SYSTEM = {
    "agent/elasticd_agent/loop/clock.py": "Each part of the agent has the same clock.",
    "agent/elasticd_agent/loop/owner_watchdog.py": "It judges the owner's thread from another one.",
    "agent/elasticd_agent/pod/first_process.py": "The dashboard is process 1 of a container, too.",
    "agent/elasticd_agent/pod/keeper_wait.py": "Only in a container does an agent wait for this.",
    "agent/elasticd_agent/pool/fork_server/installation.py": "It looks at packages alone.",
    "agent/elasticd_agent/pool/process/niceness.py": "The pool, its zygote and the keeper use it.",
    "agent/elasticd_agent/pool/zygote/rank_at_import.py": "It knows other libraries by name.",
    "agent/elasticd_agent/worker_setup/log_folder.py": "It alone takes a lock of a folder.",
    "elasticd/dashboard/page.py": "It holds the page's file, and what a browser may do with it.",
    "elasticd/keeper/memory/free_memory.py": "It reads the limits of the kernel's memory groups.",
    "elasticd/net/peer.py": "Five servers of unix sockets ask the kernel by it.",
    "elasticd/store/private_etcd/etcd_log.py": "It knows how etcd writes its log.",
    "elasticd/store/real_user.py": "One switch of the kernel, for the three files that open etcd.",
    "elasticd/store/request_times.py": "It counts, for the connection, and for metrics.",
    "elasticd/tensors/mesh_cache.py": "It clears a cache of torch's by a private name.",
    "elasticd/train/introspection/stuck_rank.py": "It ends the process; the others only look.",
    "elasticd/train/process_group/compiler_skip.py": "It knows Dynamo, and its neighbours do not.",
    "elasticd/train/process_group/gloo_connections.py": "It knows sockets and no Gloo.",
    "elasticd/train/session/output_file.py": "It alone changes descriptors 1 and 2.",
}
"""One thing that the kernel, or another library, has or wants."""

SHORT_FILES: dict[str, str] = {
    **_ENTRY_POINTS,
    **_COMMANDS,
    **_RECORDS_AND_ERRORS,
    **_PORTS,
    **_PURE_RULES,
    **_SYSTEM,
}
"""The files, with the reason of each."""
