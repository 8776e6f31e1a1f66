"""TLS: truststore, key pair and checks."""

from __future__ import annotations

import os
import re

from toolkit.config.keys import TLS_KEYS, Properties
from toolkit.config.needs import read_bytes, refuse_java
from toolkit.config.stores import is_pem, pem_lines, read_pkcs12
from toolkit.errors import UsageError

CHECK = "ssl.endpoint.identification.algorithm"


def tls(properties: Properties) -> Properties:
    """The canonical keys."""
    do = "Set the certificates as PEM or PKCS#12 files."
    refuse_java(properties, "ssl.engine.factory.class", do=do, own=(".DefaultSslEngineFactory",))
    keys = {key: properties[key] for key in TLS_KEYS if key in properties}
    keys |= _trust(properties) | _key_pair(properties)
    for key in ("ssl.ca.pem", "ssl.certificate.pem", "ssl.key.pem"):
        if key in keys:
            keys[key] = pem_lines(key, keys[key])
    for key in ("ssl.certificate.location", "ssl.key.location", "ssl.crl.location"):
        if key in keys:
            read_bytes(keys[key])
    if CHECK in keys:
        check = keys[CHECK].lower() or "none"
        if check not in {"none", "https"}:
            raise UsageError(f"{CHECK} is {keys[CHECK]!r}.", do="Use https, or none.")
        keys[CHECK] = check
    if re.match(r"(TLS|SSL)_", keys.get("ssl.cipher.suites", "")):  # Java's names, unknown to OpenSSL
        del keys["ssl.cipher.suites"]
    return keys


def _trust(properties: Properties) -> Properties:
    path = properties.get("ssl.truststore.location", properties.get("ssl.ca.location"))
    if not path or path == "probe":  # librdkafka's value for the system's certificates
        return {}
    if os.path.isdir(path) or is_pem(path):
        return {"ssl.ca.location": path}
    _, certificates = read_pkcs12(path, properties, "ssl.truststore.password")
    return {"ssl.ca.pem": certificates}


def _key_pair(properties: Properties) -> Properties:
    path = properties.get("ssl.keystore.location")
    if not path:
        return {}
    if is_pem(path):
        return {"ssl.certificate.location": path, "ssl.key.location": path}
    key, certificates = read_pkcs12(path, properties, "ssl.keystore.password")
    if not key:
        raise UsageError(f"{path} holds no private key.", do="Point ssl.keystore.location to the client's key store.")
    return {"ssl.certificate.pem": certificates, "ssl.key.pem": key}
