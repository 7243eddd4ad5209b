"""What stands in the bucket: manifests, entries of the log, layouts and checksums. Pure.

The words for a tensor's way from the ranks into the bucket; offsets and shapes of boxes count
elements, everything else counts bytes::

    tensor [6, 4]            box     offsets of its first element, and its shape: here
    +---------------+                offsets (0, 0), shape (3, 4) and offsets (3, 0), shape (3, 4)
    |    box 0      |        piece   one box, and the byte of a part at which its elements begin,
    +---------------+                in row-major order
    |    box 1      |        share   all pieces that one rank copies: an n-th of the state's bytes
    +---------------+

    part of share 0          part    one object of some 64 MiB; a share has one or more
    | piece | piece | ...    block   4 MiB of a part: what has a checksum, and is read at once
    | block | block | ...
"""
