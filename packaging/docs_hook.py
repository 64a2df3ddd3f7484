"""A hook of mkdocs that makes Sphinx's roles in docstrings readable, as mkdocstrings keeps them."""

import re

ROLE = re.compile(r":(?:attr|class|data|exc|func|meth|mod):(?=<code>)")


def on_page_content(html: str, **_: object) -> str:
    """Return a page without the roles before names of code."""
    return ROLE.sub("", html)
