"""Adapters: the real clock, disks, sockets and consensus behind the seams of :mod:`ares.runtime.ports`."""
