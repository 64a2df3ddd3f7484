"""Names of the environment variables of ares.

A variable of another program, as OTEL_SERVICE_NAME, is named in the one module that reads it.
"""

CLUSTER_VARIABLE = "ARES_CLUSTER"
"""The cluster file, where no option names it."""

KEY_VARIABLE = "ARES_KEY"
"""The file with the client's secret key."""

SITE_VARIABLE = "ARES_SITE"
"""The client's site."""

CACHE_VARIABLE = "ARES_CACHE"
"""The directory of remembered copies, or `off`."""

PURE_VARIABLE = "ARES_PURE"
"""Whether all work is done in Python, although there is a compiled core: any text but 0."""
