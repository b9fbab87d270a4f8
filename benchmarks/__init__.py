"""One program per performance figure, next to its peers. Nothing here asserts a time."""
