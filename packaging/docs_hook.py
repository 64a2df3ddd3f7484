"""A hook of mkdocs: docstrings name classes with Sphinx's roles, which mkdocstrings shows as text."""

import re

ROLE = re.compile(r":(?:attr|class|data|exc|func|meth|mod):(?=<code>)")


def on_page_content(html: str, **_: object) -> str:
    """Return a page without the roles before names of code."""
    return ROLE.sub("", html)
