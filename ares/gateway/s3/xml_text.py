"""Text of XML documents: escapes and elements."""

import re

XML_HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n'

S3_NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"

_SPECIAL = re.compile('[&<>"\x00-\x1f\ud800-\udfff\ufffe\uffff]')
_ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"}


def escaped(text: str) -> str:
    """Return ``text`` for an element or an attribute.

    Control characters become references, as S3 writes them, also those that XML 1.0 has not.
    Clients ask for ``encoding-type=url`` for these.
    """
    return _SPECIAL.sub(_reference, text)


def _reference(found: re.Match[str]) -> str:
    character = found[0]
    return _ESCAPES.get(character) or f"&#x{ord(character):X};"


def text_element(name: str, value: str | int | bool) -> str:
    """Return an element with a text, a number or a truth value."""
    if isinstance(value, bool):
        value = "true" if value else "false"
    return f"<{name}>{escaped(str(value))}</{name}>"


def xml_document(name: str, content: str) -> bytes:
    """Return a document of S3's namespace."""
    return f'{XML_HEAD}<{name} xmlns="{S3_NAMESPACE}">{content}</{name}>'.encode()
