"""What stands in the bucket: manifests, entries of the log, layouts and checksums. Pure."""
