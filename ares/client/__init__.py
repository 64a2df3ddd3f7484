"""The client: operations (pure), the session that runs them (pure), and the manager that users hold (asyncio)."""
