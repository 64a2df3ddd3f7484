"""Manifests of reservations at Fed4FIRE (as jFed saves them) and at Emulab.

The format is GENI RSpec, version 3, with the extensions of both. For a node, the parser reads the
name (``client_id``), the authority (``component_manager_id``), the logins, the address of the first
interface, and the proxy through which jFed logs in. Nodes that are no machines (a block store, a
node without login) are left out.
"""

import re
from collections.abc import Sequence
from urllib.parse import urlsplit
from xml.etree import ElementTree
from xml.etree.ElementTree import Element
from xml.parsers import expat

from ares.model.errors import BadInput
from ares.tracing.tree import printable
from experiments.testbeds.reserved import Jump, ReservedMachine, port

GENI = "http://www.geni.net/resources/rspec/3"
PROXY = "http://jfed.iminds.be/proxy/1.0"
AUTHORITIES = {
    "fed4fire": (
        *("iminds.be", "imec.be", "grid5000.fr", "fed4fire.eu", "omf:netmode", "omf:nitos"),
        *("smartsantander.eu", "nitlab.inf.uth.gr"),
    ),
    "emulab": ("emulab.net", "cloudlab.us", "geniracks.net", "clemson.edu", "wisc.edu"),
}
"""Authorities that assign machines, by the ends of their names."""

_DEPTH_MAX = 64
_AUTHORITY = re.compile(r"urn:publicid:IDN\+([\w.:-]+)\+authority\+\w+")


def machines(
    content: bytes, testbed: str, user: str | None = None, more: Sequence[str] = ()
) -> list[ReservedMachine]:
    """Return the machines in a manifest from ``testbed``, a key of AUTHORITIES.

    ``more`` has further authorities; ``user`` selects the logins of that user. Raises BadInput if
    `content` is no manifest, has no machine, or is from another authority.
    """
    root = _parsed(content)
    if root.tag != f"{{{GENI}}}rspec":
        raise BadInput(
            f"this is no RSpec of version 3: its first element is {printable(root.tag)!r}, not "
            f"rspec of {GENI}. Nothing was written"
        )
    nodes, login = root.findall(f"{{{GENI}}}node"), f"{{{GENI}}}services/{{{GENI}}}login"
    usable = [node for node in nodes if node.find(login) is not None]
    if not usable:
        kind, why = printable(root.get("type", "without a type")), ""
        if kind == "request":
            why = "; this is a request, and the manifest comes once the machines are there"
        raise BadInput(
            f"this RSpec ({kind}) has {len(nodes)} nodes, and none that one can log in to{why}. "
            "Nothing was written"
        )
    return [_machine(node, testbed, user, more) for node in usable]


def _parsed(content: bytes) -> Element:
    """Parse XML. Refuse document types (endless entities are possible) and deep nesting."""
    depth = 0

    def refuse(*_: object) -> None:
        raise BadInput(
            "this XML declares a document type (DOCTYPE), which no manifest needs and which may "
            "hide endless text; nothing was written"
        )

    def enter(*_: object) -> None:
        nonlocal depth
        depth += 1
        if depth > _DEPTH_MAX:
            raise BadInput(
                f"this XML has elements in more than {_DEPTH_MAX} others, as no manifest has; "
                "nothing was written"
            )

    def leave(_: object) -> None:
        nonlocal depth
        depth -= 1

    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler = refuse
    parser.StartElementHandler, parser.EndElementHandler = enter, leave
    try:
        parser.Parse(content, True)
        return ElementTree.fromstring(content)
    except (expat.ExpatError, ElementTree.ParseError, ValueError, LookupError) as error:
        if isinstance(error, BadInput):
            raise
        raise BadInput(f"this is not XML: {error}; nothing was written") from None


def _machine(node: Element, testbed: str, user: str | None, more: Sequence[str]) -> ReservedMachine:
    name, services = node.get("client_id", ""), f"{{{GENI}}}services"
    authority = _authority(name, node.get("component_manager_id", ""), testbed, more)
    jumps = {
        _place(proxy.get("for", "")): Jump(*_place(proxy.get("proxy", "")))
        for proxy in node.findall(f"{services}/{{{PROXY}}}proxy")
    }
    gates = {(jump.address, jump.port) for jump in jumps.values()}
    logins = [_login(login) for login in node.findall(f"{services}/{{{GENI}}}login")]
    logins = [login for login in logins if login[1:] not in gates and user in (None, login[0])]
    users, of = sorted({login[0] for login in logins}), f"node {printable(name)!r} has"
    if not logins:
        raise BadInput(f"{of} no login for {printable(user or '')!r}; nothing was written")
    if len(users) > 1:
        raise BadInput(
            f"{of} logins for {', '.join(map(printable, users))}: say whose to take (--user). "
            "Nothing was written"
        )
    addresses = node.findall(f"{{{GENI}}}interface/{{{GENI}}}ip")
    addresses.sort(key=lambda address: address.get("type") != "ipv4")
    inner = addresses[0].get("address") if addresses else None
    host = node.find(f"{{{GENI}}}host")
    outer = host.get("ipv4") if host is not None else None
    user, login, door = logins[0]
    site = re.sub(r"[^A-Za-z0-9]+", "-", authority)[-32:].strip("-")
    jump = jumps.get(logins[0])
    return ReservedMachine(name, site, login, door, user, inner, outer or login, jump)


def _authority(name: str, manager: str, testbed: str, more: Sequence[str]) -> str:
    found = _AUTHORITY.fullmatch(manager)
    authority, known = found[1] if found else "", [*AUTHORITIES[testbed], *more]
    if authority and any(authority == end or authority.endswith(f".{end}") for end in known):
        return authority
    named = printable(authority or manager) or "nobody"
    others = (other for other, ends in AUTHORITIES.items() if authority.endswith(ends))
    hint = "an authority that is not in this list is added with --authority"
    if (elsewhere := next(others, None)) is not None:
        hint = f"that is testbed {elsewhere}"
    raise BadInput(
        f"node {printable(name)!r} is from {named}, and {testbed} has {', '.join(known)}; {hint}. "
        "Nothing was written"
    )


def _login(login: Element) -> tuple[str, str, int]:
    return login.get("username", ""), login.get("hostname", ""), port(login.get("port", "22"))


def _place(text: str) -> tuple[str, str, int]:
    """Parse ``user@host:port``."""
    try:
        parts = urlsplit(f"//{text}")
        user, host, door = parts.username, parts.hostname, parts.port or 22
    except ValueError:
        user = host = None
    if not user or not host:
        what = f"a proxy in this manifest is {printable(text)!r}, not user@host:port"
        raise BadInput(f"{what}; nothing was written")
    return user, host, door
