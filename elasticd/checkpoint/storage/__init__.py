"""The bucket: a folder, S3, Google or Azure behind one port."""
