"""Consensus by an etcd cluster."""
