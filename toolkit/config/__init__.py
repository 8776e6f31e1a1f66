"""One configuration for all clients, in librdkafka's keys, with masked secrets.

The user passes ``"host:port"``, a mapping of librdkafka or Java keys, or the
``client.properties`` of their application. All become the same canonical form, from which every client is configured.
"""

from toolkit.config.client import ClientConfig, config_from_scope, param
from toolkit.config.properties import TokenProvider

__all__ = ["ClientConfig", "TokenProvider", "config_from_scope", "param"]
