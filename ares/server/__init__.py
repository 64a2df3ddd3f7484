"""A storage server: a pure replica, and a shell with a store and a network."""
