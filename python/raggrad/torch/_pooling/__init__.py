"""Ways to pool bags on a GPU: with a plan that backward uses, many tables at once, and without waiting."""
