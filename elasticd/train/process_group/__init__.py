"""One generation's process group: formed, aborted from any thread, taken down."""
