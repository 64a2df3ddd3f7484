"""The shared log measured: what the thesis of Ikaria draws, what it leaves out, and other logs beside it (docs/log.md)."""
