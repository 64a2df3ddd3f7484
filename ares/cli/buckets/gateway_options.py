"""The options of the command gateway."""

from pathlib import Path
from typing import Annotated

import typer

PROCESSES_MAX = 64
_LIMITS = "Limits of each process"

Listen = Annotated[
    str, typer.Option("--listen", metavar="HOST:PORT", help="Where S3 clients connect.")
]
Processes = Annotated[
    int,
    typer.Option(
        "--processes",
        metavar="N",
        min=1,
        max=PROCESSES_MAX,
        help="Serve with N processes, each with a processor of its own.",
    ),
]
Domains = Annotated[
    list[str] | None,
    typer.Option(
        "--domain",
        metavar="NAME",
        help="Take BUCKET.NAME in the address for a bucket; may be repeated.",
        show_default=False,
    ),
]
Region = Annotated[
    str, typer.Option("--region", metavar="NAME", help="The region that clients sign for.")
]
TlsCertificate = Annotated[
    Path | None,
    typer.Option(
        "--tls-cert",
        metavar="FILE",
        help="Serve over TLS with these certificates; read again when the files change.",
        show_default=False,
    ),
]
TlsKey = Annotated[
    Path | None,
    typer.Option(
        "--tls-key", metavar="FILE", help="The key of the certificate.", show_default=False
    ),
]
HttpPages = Annotated[
    str,
    typer.Option(
        "--http",
        metavar="HOST:PORT",
        help="Serve /health and /metrics there; worker N has the port N higher.",
        show_default=False,
    ),
]
AccessLogFile = Annotated[
    str,
    typer.Option(
        "--access-log",
        metavar="FILE",
        help="Add a line of JSON for each request to this file, or to standard output for -; "
        "opened again on SIGHUP.",
        show_default=False,
    ),
]
Connections = Annotated[
    int,
    typer.Option("--connections", metavar="N", min=1, help="Connections.", rich_help_panel=_LIMITS),
]
AddressConnections = Annotated[
    int | None,
    typer.Option(
        "--address-connections",
        metavar="N",
        min=1,
        help="Connections of a client's address; more where all clients come through a proxy. "
        "Default: half of all.",
        show_default=False,
        rich_help_panel=_LIMITS,
    ),
]
Requests = Annotated[
    int,
    typer.Option(
        "--requests", metavar="N", min=1, help="Requests at work.", rich_help_panel=_LIMITS
    ),
]
MemoryMib = Annotated[
    int,
    typer.Option(
        "--memory",
        metavar="MIB",
        min=64,
        help="Memory for the data of requests at work.",
        rich_help_panel=_LIMITS,
    ),
]
