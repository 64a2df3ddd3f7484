"""The vocabulary of the protocol, pure: no clock, socket, disk or chance.

Identities, tags, configurations, messages and their bytes, quorums, errors.
"""
