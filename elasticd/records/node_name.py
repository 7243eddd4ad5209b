"""The id of a node by its name in Kubernetes, for all who must translate the one into the other.

A name in Kubernetes may have 253 characters, an id in elasticd has 63 (it is a segment of a key and
the name of a file). The agent in a pod and the operator, which drains nodes from outside, call the
same function.
"""

import hashlib
import re

from elasticd.records.ids import NodeId

__all__ = ["node_id_of"]

LENGTH_LIMIT = 63
_HASH_LENGTH = 8
"""The number of hexadecimal digits: of a thousand nodes with one beginning two share them once in
8,000 times."""


def node_id_of(name: str) -> NodeId:
    """Return the id of the node that has this name in Kubernetes.

    A name of up to 63 characters is its own id; a longer one keeps its beginning, and a hash of all
    of it distinguishes it from others that begin so. The name is one that Kubernetes allows:
    lower-case letters, digits, '-' and '.', with a letter or digit at both ends.
    """
    if len(name) <= LENGTH_LIMIT:
        return NodeId(name)
    digest = hashlib.sha256(name.encode()).hexdigest()[:_HASH_LENGTH]
    kept = re.sub(r"[^A-Za-z0-9]+$", "", name[: LENGTH_LIMIT - _HASH_LENGTH - 1])
    return NodeId(f"{kept}-{digest}")
