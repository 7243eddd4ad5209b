"""`elasticd run`: its flags, the request that they make, and the three ways to run a job."""
