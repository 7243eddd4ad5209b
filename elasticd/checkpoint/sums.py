"""Checksums of blocks: XXH3, which keeps up with memory; against accidents, not attackers."""

import xxhash

__all__ = ["BLOCK_BYTES", "block_sum", "block_sums", "text_sum"]

BLOCK_BYTES = 4 << 20
"""What one checksum covers, and so the least that is read: large beside a request's cost."""


def block_sum(block: memoryview) -> str:
    """XXH3-64 of one block, 16 hexadecimal digits; lets other threads run meanwhile."""
    return xxhash.xxh3_64_hexdigest(block)


def block_sums(part: memoryview) -> tuple[str, ...]:
    """The sum of each 4 MiB of a part, the last of what is left."""
    return tuple(
        block_sum(part[start : start + BLOCK_BYTES]) for start in range(0, len(part), BLOCK_BYTES)
    )


def text_sum(text: bytes) -> str:
    """XXH3-128 of a manifest, or of any text."""
    return xxhash.xxh3_128_hexdigest(text)
