"""Keys, certificates and roles: the rights to connect, and the rights of each client."""
