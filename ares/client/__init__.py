"""The client of a cluster: the manager that users hold, and the runner of sessions (asyncio)."""
