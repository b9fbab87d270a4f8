"""One program per performance figure, peers beside it. Nothing here asserts a time."""
