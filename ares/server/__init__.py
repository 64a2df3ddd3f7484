"""A storage server: a pure replica of the protocols, and the shell that gives it a store and a network."""
