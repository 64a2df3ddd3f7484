"""The running of operations: their effects, and the session that performs these with servers.

Pure.
"""
