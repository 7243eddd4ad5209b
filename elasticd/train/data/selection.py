"""Which samples of a larger dataset a loader reads, as torch's `random_split` has drawn them.

Without a seed each process draws other samples. Then a sample's number means another sample on each
rank, and a replacement process trains on samples that were held back for validation.
"""

from hashlib import blake2b

import numpy as np
from torch.utils.data import Subset

__all__ = ["selection_of"]


def selection_of(dataset: object) -> str:
    """Return a digest of the indices of a `Subset`, and of one within it; empty for others."""
    found = blake2b(digest_size=8)
    is_subset = False
    while isinstance(dataset, Subset):
        try:
            found.update(np.asarray(dataset.indices, dtype=np.int64).tobytes())
        except (TypeError, ValueError, OverflowError):
            return ""  # Indices of the script's own kind.
        is_subset = True
        dataset = dataset.dataset
    return found.hexdigest() if is_subset else ""
