"""Replies of a collector over HTTP: a bounded part is read, and a refusal is kept for the log."""

from http import HTTPStatus
from io import BytesIO
from typing import Any

from requests import Response
from requests.adapters import HTTPAdapter

REPLY_BYTES_MAX = 4096
"""The bytes read of a reply; the connection of a longer reply is closed."""

WORDS_MAX = 200
"""The characters kept of a collector's text in a refusal."""


class BoundedReplies(HTTPAdapter):
    """Transport of the OTLP exporter."""

    refused = ""
    """Sentence for the last reply, if the reply is a refusal; else empty."""

    def send(self, *args: Any, **kwargs: Any) -> Response:
        """Send a request; return its reply with at most REPLY_BYTES_MAX of its body."""
        response = super().send(*args, **kwargs)
        body = response.raw.read(REPLY_BYTES_MAX, decode_content=False)
        response.raw.close()
        response.raw = BytesIO(body)
        taken = response.status_code < HTTPStatus.MULTIPLE_CHOICES
        self.refused = "" if taken else _refusal_sentence(response, body)
        return response


def _refusal_sentence(response: Response, body: bytes) -> str:
    """Return the sentence for a refusal."""
    words = "" if response.headers.get("Content-Encoding") else body.decode(errors="replace")
    status, answered = f"{response.status_code} {response.reason or ''}", " ".join(words.split())
    sentence = f"the collector refuses them with {status.strip()}" + (
        f" and says: {answered[:WORDS_MAX]}" if answered else ""
    )
    return "".join(each if each.isprintable() else "?" for each in sentence)
