"""The autopilot: watches the servers, and replaces those that are gone."""
