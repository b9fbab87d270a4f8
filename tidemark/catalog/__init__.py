"""The catalogue of databases: which tables changed, what is carried, what a state must satisfy."""
