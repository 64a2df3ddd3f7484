"""Commands that make a cluster and run its processes on this machine."""
