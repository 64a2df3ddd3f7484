"""The reading of XML in the bodies of requests: bounded, without DTD and without entities.

A document is one feed to expat. The work is linear in its bytes: no declaration, no reference but
the five of XML, bounded depth, elements and attributes.
"""

from collections.abc import Iterator
from xml.parsers import expat

from ares.gateway.s3.s3_errors import S3Code, S3Error
from ares.gateway.s3.xml_text import S3_NAMESPACE

XML_BYTES_MAX = 4 * 1024**2
XML_DEPTH_MAX = 12
XML_ELEMENTS_MAX = 100_000
XML_ATTRIBUTES_MAX = 8
"""Attributes of an element: a grantee has one, and the root has declarations of namespaces."""

_NAMESPACES = ("", S3_NAMESPACE, S3_NAMESPACE.rstrip("/"))
_SEPARATOR = " "
_DOCUMENT_TYPE = b"<!DOCTYPE"
"""Begin of a declaration; looked for first, because expat reads on after an error of a handler."""

_SCHEMA_TYPE = "http://www.w3.org/2001/XMLSchema-instance type"


class XmlElement:
    """An element. ``type``: the attribute ``xsi:type`` of a grantee."""

    __slots__ = ("children", "name", "text", "type")

    def __init__(self, name: str, kind: str) -> None:
        self.name = name
        self.type = kind
        self.text = ""
        self.children: list[XmlElement] = []

    def all(self, name: str) -> Iterator["XmlElement"]:
        """Yield the children of a name."""
        return (child for child in self.children if child.name == name)

    def child(self, name: str) -> "XmlElement | None":
        """Return the only child of a name. Raises MalformedXML for a second one."""
        found = list(self.all(name))
        if len(found) > 1:
            raise malformed(f"{self.name} has {name} more than once")
        return found[0] if found else None

    def value(self, name: str, default: str | None = None) -> str:
        """Return the text of a child. Raises MalformedXML without it, unless with a default."""
        found = self.child(name)
        if found is not None:
            return found.leaf()
        if default is None:
            raise malformed(f"{self.name} lacks {name}")
        return default

    def leaf(self) -> str:
        """Return the text. Raises MalformedXML if there are elements in place of text."""
        if self.children:
            raise malformed(f"{self.name} has text alone")
        return self.text

    def leaves(self, *names: str) -> dict[str, str]:
        """Return the texts of all children, by name.

        Raises MalformedXML for a child beyond ``names``, and for a second one of a name.
        """
        found = {child.name: child.leaf() for child in self.children}
        if len(found) < len(self.children):
            raise malformed(f"{self.name} has an element more than once")
        if not found.keys() <= set(names):
            self.check_children(*names)
        return found

    def check_children(self, *names: str) -> None:
        """Raise MalformedXML for a child beyond ``names``."""
        for child in self.children:
            if child.name not in names:
                raise malformed(f"{self.name} has no {child.name[:100]}")


class _TreeBuilder:
    """The handlers of expat, which build the tree."""

    def __init__(self) -> None:
        self.root: XmlElement | None = None
        self._open: list[XmlElement] = []
        self._left = XML_ELEMENTS_MAX
        self._texts: list[list[str]] = []

    def start(self, name: str, attributes: dict[str, str]) -> None:
        namespace, _, local = name.rpartition(_SEPARATOR)
        self._left -= 1
        if namespace not in _NAMESPACES:
            raise malformed("an element is of another namespace")
        if not self._left or len(self._open) == XML_DEPTH_MAX:
            raise malformed("it has too many elements")
        if len(attributes) > XML_ATTRIBUTES_MAX:
            raise malformed("an element has too many attributes")
        element = XmlElement(local, attributes.get(_SCHEMA_TYPE, ""))
        if self._open:
            self._open[-1].children.append(element)
        else:
            self.root = element
        self._open.append(element)
        self._texts.append([])

    def end(self, _: str) -> None:
        element, texts = self._open.pop(), self._texts.pop()
        text = "".join(texts)
        if not element.children:
            element.text = text
        elif not text.isspace() and text:
            raise malformed(f"{element.name[:100]} has text between elements")

    def text(self, text: str) -> None:
        self._texts[-1].append(text)


def parse_xml(data: bytes, *roots: str, bytes_max: int = XML_BYTES_MAX) -> XmlElement:
    """Return the root element, which has one of the names ``roots``. Raises MalformedXML."""
    if not data:
        raise S3Error(S3Code.MissingRequestBodyError)
    if len(data) > bytes_max:
        raise malformed(f"it has more than {bytes_max} bytes")
    if _DOCUMENT_TYPE in data:
        raise malformed("a document type is not taken")
    builder = _TreeBuilder()
    parser = expat.ParserCreate("UTF-8", _SEPARATOR)
    parser.buffer_text = True
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.text
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        raise malformed(f"line {error.lineno}, column {error.offset}") from None
    if builder.root is None or builder.root.name not in roots:
        raise malformed(f"the document is a {' or a '.join(roots)}")
    return builder.root


def malformed(why: str) -> S3Error:
    """Return MalformedXML with the reason."""
    return S3Error(S3Code.MalformedXML, f"{S3Code.MalformedXML.sentence} ({why})")
