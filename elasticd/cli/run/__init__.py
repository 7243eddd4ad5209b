"""`elasticd run`: its flags, what they ask for, and the three ways to run a job."""
