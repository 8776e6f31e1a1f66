"""Certificates made here, and a handshake with them."""

import contextlib
import ssl
import subprocess
from pathlib import Path
from typing import Any

from toolkit.config import ClientConfig


class Certificates:
    """A certificate authority and what it signed, made with the openssl command."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ca = self.make("ca", "-x509", "-days", "2")
        self.server = self.make("server", *self.signed(), "-addext", "subjectAltName=DNS:broker.example.com")
        self.client = self.make("client", *self.signed())
        self.run("rsa", "-aes128", "-passout", "pass:s3cr3t", "-in", "client.key", "-out", "client.locked.key")

    def make(self, name: str, *options: str) -> Path:
        key = ["-newkey", "rsa:2048", "-noenc", "-keyout", f"{name}.key"]
        self.run("req", *key, "-out", f"{name}.crt", "-subj", f"/CN={name}", *options)
        return self.folder / f"{name}.crt"

    @staticmethod
    def signed() -> list[str]:
        return ["-x509", "-days", "2", "-CA", "ca.crt", "-CAkey", "ca.key"]

    def key(self, name: str) -> Path:
        return self.folder / f"{name}.key"

    def run(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self.folder, check=True, capture_output=True, timeout=120)

    def pkcs12(self, name: str, *, password: str) -> Path:
        pair = ["-in", f"{name}.crt", "-inkey", f"{name}.key", "-certfile", "ca.crt"]
        self.run("pkcs12", "-export", *pair, "-out", f"{name}.p12", "-passout", f"pass:{password}")
        return self.folder / f"{name}.p12"


def tls(**keys: object) -> ClientConfig:
    settings = {key.replace("_", "."): str(value) for key, value in keys.items()}
    return ClientConfig({"bootstrap.servers": "b:9092", "security.protocol": "SSL"} | settings)


def shake_hands(config: ClientConfig, certificates: Certificates, *, host: str = "broker.example.com") -> str:
    """Both sides of a handshake in memory; returns the client's common name as the server received it."""
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_side.maximum_version = ssl.TLSVersion.TLSv1_2  # 1.3 checks the client only after its handshake
    server_side.load_cert_chain(certificates.server, certificates.key("server"))
    server_side.load_verify_locations(certificates.ca)
    server_side.verify_mode = ssl.CERT_OPTIONAL
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = config.kafka_python()["ssl_context"].wrap_bio(back, there, server_hostname=host)
    server = server_side.wrap_bio(there, back, server_side=True)
    for _ in range(5):
        for side in (client, server):
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()
    observed: dict[str, Any] = server.getpeercert() or {}
    return str(dict(pair for ((pair),) in observed["subject"])["commonName"]) if observed else ""
