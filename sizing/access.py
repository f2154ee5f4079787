"""Credentials and TLS, from the environment of the process that connects: the driver's, and each executor's.

======================================= ================================================================
variable                                what it holds
======================================= ================================================================
SLOTFERRY_TOKEN                         topom's bearer token; only the driver needs it
SLOTFERRY_SIZING_REDIS_USER             the ACL user of the servers; without it their user ``default``
SLOTFERRY_SIZING_REDIS_PASSWORD         the password for AUTH; without it, none
SLOTFERRY_SIZING_REDIS_TLS              ``true`` for TLS with the servers
SLOTFERRY_SIZING_REDIS_TLS_CA           file with the authorities for servers' certificates, in PEM; else the system's
SLOTFERRY_SIZING_REDIS_TLS_CERTIFICATE  file with the certificate shown to servers
SLOTFERRY_SIZING_REDIS_TLS_KEY          file with its key
SLOTFERRY_SIZING_REDIS_TLS_VERIFY_HOST  ``false`` where certificates are not for the servers' addresses
======================================= ================================================================

On Spark's local mode executors inherit the driver's. On a cluster they have their own: set them on the workers, or pass
them on with ``spark.executorEnv.NAME`` where the cluster's configuration is not shown to others.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from sizing.errors import OptionError
from slots.access import ServerAccess, ServerTls
from slots.environment import misspelt

SIZING, REDIS = "SLOTFERRY_SIZING_", "redis_"
PREFIX = SIZING + REDIS.upper()
NAMES = ("user", "password", "tls", "tls_ca", "tls_certificate", "tls_key", "tls_verify_host")
TOKEN = "SLOTFERRY_TOKEN"


def server_access(environment: Mapping[str, str] = os.environ) -> ServerAccess:
    """How to log in at the servers.

    Raises:
        OptionError: a variable is neither true nor false, or names a file that does not exist.
        slots.tls.TlsError: the files cannot be used.
    """

    def text(name: str) -> str:
        return environment.get(PREFIX + name, "")

    if sentences := misspelt(SIZING, [f"{REDIS}{name}" for name in NAMES], environment):
        raise OptionError("\n".join(sentences))
    tls = None
    if _truth(environment, "TLS", default=False):
        tls = ServerTls(
            text("TLS_CA"), text("TLS_CERTIFICATE"), text("TLS_KEY"), _truth(environment, "TLS_VERIFY_HOST", True)
        )
    return ServerAccess(text("PASSWORD"), text("USER"), tls)


def token(environment: Mapping[str, str] = os.environ) -> str:
    """topom's bearer token; "" where none is set."""
    return environment.get(TOKEN, "")


def _truth(environment: Mapping[str, str], name: str, default: bool) -> bool:
    said = environment.get(PREFIX + name, "").lower()
    if said in ("true", "1", "yes", "on"):
        return True
    if said in ("false", "0", "no", "off"):
        return False
    if said:
        raise OptionError(f"the environment variable {PREFIX}{name} has to be true or false")
    return default
