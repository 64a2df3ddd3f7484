"""The transport over libzmq, for those who prefer its implementation."""
