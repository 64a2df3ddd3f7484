"""How operations run: the effects that they ask for, and the session that carries those out with servers. Pure."""
