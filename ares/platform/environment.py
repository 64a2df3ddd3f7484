"""Names of the environment variables of ares.

Variables of other programs, such as OTEL_SERVICE_NAME, are named in the modules that read them.
"""

CLUSTER_VARIABLE = "ARES_CLUSTER"
"""Path of the cluster file for commands without the option."""

KEY_VARIABLE = "ARES_KEY"
"""Path of the file with the client's secret key."""

SITE_VARIABLE = "ARES_SITE"
"""Site of the client."""

TRANSPORT_VARIABLE = "ARES_TRANSPORT"
"""Transport of new clusters, for commands without the option."""

CACHE_VARIABLE = "ARES_CACHE"
"""Directory of remembered copies, or `off`."""

PURE_VARIABLE = "ARES_PURE"
"""Switch that leaves the compiled core aside: any text except 0."""
