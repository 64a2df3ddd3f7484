"""Messages and configurations in a few words, for the story of a run."""

from ares.model.configuration import Configuration, Successor
from ares.model.messages import AnyMessage, Element, Listed
from ares.model.tag import Tag

_names: dict[bytes, str] = {}


def name_configuration(configuration: Configuration) -> str:
    """``c2(ec s0,s1,s2)``; remembers the id, so that messages that carry only the id can be told."""
    short = f"c{configuration.index}"
    _names[configuration.id] = short
    return f"{short}({configuration.dap} {','.join(configuration.server_ids)})"


def describe_message(message: AnyMessage) -> str:
    """``PutData c0 k 3.1``: the kind, then the fields that matter."""
    words = [type(message).__name__]
    for field in message.__struct_fields__:
        value = getattr(message, field)
        match value:
            case bytes():
                words.append(_names.get(value, value.hex()[:6]))
            case Configuration():
                words.append(name_configuration(value))
            case Successor():
                words.append(f"next={name_configuration(value.configuration)}:{'F' if value.finalized else 'P'}")
            case Element():
                words.append(f"element {value.index} of {value.length} bytes")
            case None | False:
                pass
            case True:
                words.append(field)
            case Tag():
                words.append(_tag(value))
            case tuple():
                words.append("[" + " ".join(_item(item) for item in value) + "]")
            case _ if field != "call":
                words.append(f"{field}={value}" if isinstance(value, int) else str(value))
    return " ".join(words)


def _tag(tag: Tag) -> str:
    return f"{tag.number}.{tag.writer}"


def _item(item: object) -> str:
    match item:
        case Tag():
            return _tag(item)
        case Listed():
            return f"{item.name} {_tag(item.tag)}"
        case _:
            return str(item)
