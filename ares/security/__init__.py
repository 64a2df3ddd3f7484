"""Keys, certificates and roles: who may connect, and what each may ask."""
