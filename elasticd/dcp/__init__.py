"""torch.distributed.checkpoint in elasticd's format: reader, writer, export."""
