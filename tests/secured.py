"""A broker with a listener for each way in which clients log in, what issues their credentials, and their search."""

from __future__ import annotations

import base64
import http.server
import json
import os
import re
import shutil
import ssl
import subprocess
import threading
import time
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

from tests.config.certificates import Certificates
from tests.process import is_listening
from toolkit.lab import Kafka
from toolkit.lab.broker import free_ports
from toolkit.lab.clients import until

USER, REALM = "ann=a,b", "TEST.EXAMPLE"  # a name that SCRAM has to escape
PASSWORDS = {
    "PLAIN": "pl4in-Zq9f8e7d", "SCRAM-SHA-256": "scr4m-Zq1b2c3d", "SCRAM-SHA-512": "scr4m-Zq4e5f6a",
    "client": "cl13nt-Zq7b8c9d", "store": "st0re-Zq0e1f2a", "key": "k3y-Zq3b4c5d6e", "identity": "1d3nt1ty-Zq7f8a9b",
}  # fmt: skip
TOKEN_LIFETIME_S = 5
REGION = "eu-central-1"  # AWS's, of MSK IAM
EVENT_HUBS = "of-t.servicebus.windows.net"  # shorter than Azure's names of namespaces: there is none
REAUTHENTICATION_MS = 2500
KERBEROS_PROGRAMS = ("krb5kdc", "kdb5_util", "kadmin.local", "kinit")
LISTENERS = {
    "TLS": "SSL", "MTLS": "SSL", "PLAIN": "SASL_SSL", "SCRAM": "SASL_SSL", "OAUTH": "SASL_SSL",
    "KERBEROS": "SASL_PLAINTEXT",
}  # fmt: skip
_MODULES = "org.apache.kafka.common.security"


def missing_for_kerberos() -> str:
    """The program or package that is missing on this machine; empty if none is."""
    programs = [name for name in KERBEROS_PROGRAMS if not which(name)]
    return programs[0] if programs else "" if find_spec("gssapi") else "the Python package gssapi"


def which(program: str) -> str | None:
    """Path of a program; a user's PATH lacks /usr/sbin."""
    return shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


class Kdc:
    """A Kerberos realm on 127.0.0.1: brokers are ``kafka/localhost``, and ``ann`` is a client."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        (port,) = free_ports(1)
        self.folder, self.config, self.cache = folder, folder / "krb5.conf", folder / "cache"
        self.config.write_text(
            f"[libdefaults]\ndefault_realm = {REALM}\ndns_lookup_kdc = false\ndns_canonicalize_hostname = false\n"
            f"rdns = false\nudp_preference_limit = 1\ndefault_ccache_name = FILE:{self.cache}\n"
            f"[realms]\n{REALM} = {{\nkdc = 127.0.0.1:{port}\n}}\n[domain_realm]\nlocalhost = {REALM}\n"
        )
        profile = folder / "kdc.conf"
        profile.write_text(
            f"[kdcdefaults]\nkdc_ports = {port}\nkdc_tcp_ports = {port}\n[realms]\n{REALM} = {{\n"
            f"database_name = {folder}/principal\nkey_stash_file = {folder}/stash\nacl_file = {folder}/acl\n}}\n"
        )
        self.environment = {"KRB5_CONFIG": str(self.config), "KRB5CCNAME": f"FILE:{self.cache}"}
        self._all = {**os.environ, **self.environment, "KRB5_KDC_PROFILE": str(profile)}
        self._run("kdb5_util", "create", "-s", "-P", "of-this-test")
        for principal in ("kafka/localhost", "ann"):
            keytab = self.keytab(principal)
            self._run("kadmin.local", "-q", f"addprinc -randkey {principal}")
            self._run("kadmin.local", "-q", f"ktadd -k {keytab} {principal}")
        self._process = subprocess.Popen(
            [which("krb5kdc") or "", "-n", "-P", str(folder / "pid")],
            env=self._all,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        until(lambda: is_listening(f"127.0.0.1:{port}") or None, awaited="the KDC")
        self._run("kinit", "-k", "-t", str(self.keytab("ann")), "ann")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.kill()
        self._process.wait()

    def keytab(self, principal: str) -> Path:
        """File with a principal's keys."""
        return self.folder / f"{principal.partition('/')[0]}.keytab"

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [which(program) or program, *arguments], env=self._all, check=True, capture_output=True, timeout=120
        )


class JsonHandler(http.server.BaseHTTPRequestHandler):
    """Responds in JSON, and writes no log."""

    def respond(self, status: int, answer: Mapping[str, object]) -> None:
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")  # or librdkafka does not read it
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None: ...


class LocalServer:
    """Serves on this machine until the end of the block. `address`: host and port."""

    def __init__(self, handler: type[JsonHandler], context: ssl.SSLContext | None = None) -> None:
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        if context is not None:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.address = f"127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._thread.join(120)
        self._server.server_close()


class TokenServer(LocalServer):
    """An identity provider: a token endpoint behind TLS, and the key that brokers check its tokens with."""

    def __init__(self, certificates: Certificates) -> None:
        self.tokens: list[str] = []
        self.is_down = False
        self._key = _signing_key(certificates)
        public = self._key.public_key().public_numbers()
        key = {"kty": "RSA", "kid": "one", "use": "sig", "alg": "RS256"} | {
            name: _base64url(number.to_bytes((number.bit_length() + 7) // 8, "big"))
            for name, number in (("n", public.n), ("e", public.e))
        }
        self.keys = certificates.folder / "jwks.json"
        self.keys.write_text(json.dumps({"keys": [key]}))
        issuer = self

        class Endpoint(JsonHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                login = base64.b64encode(f"ann:{PASSWORDS['client']}".encode()).decode()
                known = not issuer.is_down and self.headers["Authorization"] == f"Basic {login}"
                self.respond(*((200, issuer.issue()) if known else (503, {"error": "temporarily_unavailable"})))

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificates.folder / "broker.crt", certificates.key("broker"))
        super().__init__(Endpoint, context)
        self.url = f"https://{self.address}/token"

    def issue(self) -> Mapping[str, object]:
        """A token of `TOKEN_LIFETIME_S`."""
        from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
        from cryptography.hazmat.primitives.hashes import SHA256

        now = int(time.time())
        claims = {
            "sub": "ann",
            "iat": now,
            "exp": now + TOKEN_LIFETIME_S,
            "scope": "kafka",
            "jti": str(len(self.tokens)),
        }
        parts = ({"alg": "RS256", "kid": "one"}, claims)
        text = ".".join(_base64url(json.dumps(part).encode()) for part in parts)
        signature = self._key.sign(text.encode(), PKCS1v15(), SHA256())
        self.tokens.append(f"{text}.{_base64url(signature)}")
        return {"access_token": self.tokens[-1], "expires_in": TOKEN_LIFETIME_S}


class IdentityEndpoint(LocalServer):
    """Azure's endpoint for the managed identity of an app: HTTP on its own machine. The tokens are of `issuer`."""

    def __init__(self, issuer: TokenServer) -> None:
        class Endpoint(JsonHandler):
            def do_GET(self) -> None:
                query = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)
                known = self.headers["X-IDENTITY-HEADER"] == PASSWORDS["identity"]
                assert query["resource"] == [f"https://{EVENT_HUBS}"]
                token = issuer.issue()["access_token"] if known else ""
                expires = str(int(time.time()) + TOKEN_LIFETIME_S)
                answer = {"access_token": token, "expires_on": expires, "token_type": "Bearer"}
                self.respond(200 if known else 401, answer)

        super().__init__(Endpoint)
        self.environment = {
            "IDENTITY_ENDPOINT": f"http://{self.address}/token",
            "IDENTITY_HEADER": PASSWORDS["identity"],
        }


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class SecuredKafka(Kafka):
    """One broker of 4.3.1 with all of `LISTENERS`, beside the lab's own ones without security."""

    ports: Mapping[str, int]

    def _lay_out(self, directory: Path) -> None:
        super()._lay_out(directory)
        (node,) = self._nodes.values()
        self.ports = dict(zip(LISTENERS, free_ports(len(LISTENERS)), strict=True))
        text = node.settings.read_text()
        listeners = ",".join(f"{name}://{self.address(name)}" for name in LISTENERS)
        text = re.sub(r"(?m)^((?:advertised\.)?listeners=.*)$", rf"\1,{listeners}", text)
        protocols = ",".join(f"{name}:{protocol}" for name, protocol in LISTENERS.items())
        text = re.sub(r"(?m)^(listener\.security\.protocol\.map=.*)$", rf"\1,{protocols}", text)
        node.settings.write_text(text)

    def address(self, listener: str) -> str:
        """Host and port; Kerberos needs the name of the host."""
        return f"{'localhost' if listener == 'KERBEROS' else '127.0.0.1'}:{self.ports[listener]}"


def broker_properties(certificates: Certificates, tokens: TokenServer, kdc: Kdc | None) -> dict[str, str]:
    """Settings of the broker: its certificate, credentials, and connections that have to authenticate again."""
    folder = certificates.folder
    plain = f'{_MODULES}.plain.PlainLoginModule required "user_{USER}"="{PASSWORDS["PLAIN"]}";'
    properties = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "broker.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates.ca),
        "listener.name.mtls.ssl.client.auth": "required",
        "listener.name.plain.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.plain.plain.sasl.jaas.config": plain,
        "listener.name.scram.sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.oauth.sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.oauth.oauthbearer.sasl.jaas.config": f"{_MODULES}.oauthbearer.OAuthBearerLoginModule required;",
        "listener.name.oauth.oauthbearer.sasl.server.callback.handler.class": (
            f"{_MODULES}.oauthbearer.OAuthBearerValidatorCallbackHandler"
        ),
        "sasl.oauthbearer.jwks.endpoint.url": tokens.keys.as_uri(),
        "sasl.oauthbearer.clock.skew.seconds": "1",
        "listener.name.oauth.oauthbearer.connections.max.reauth.ms": "3600000",  # or the end of the token
        "listener.name.plain.plain.connections.max.reauth.ms": str(REAUTHENTICATION_MS),
        # a listener without mechanisms of its own would not start
        "listener.name.kerberos.sasl.enabled.mechanisms": "GSSAPI" if kdc else "PLAIN",
        "listener.name.kerberos.plain.sasl.jaas.config": plain,
    }
    for mechanism in ("scram-sha-256", "scram-sha-512"):
        prefix = f"listener.name.scram.{mechanism}"
        properties[f"{prefix}.sasl.jaas.config"] = f"{_MODULES}.scram.ScramLoginModule required;"
        properties[f"{prefix}.connections.max.reauth.ms"] = str(REAUTHENTICATION_MS)
    if kdc:
        login = f'useKeyTab=true storeKey=true keyTab="{kdc.keytab("kafka")}" principal="kafka/localhost@{REALM}"'
        properties["listener.name.kerberos.gssapi.sasl.jaas.config"] = (
            f"com.sun.security.auth.module.Krb5LoginModule required {login};"
        )
        properties["listener.name.kerberos.sasl.kerberos.service.name"] = "kafka"
        properties["listener.name.kerberos.gssapi.connections.max.reauth.ms"] = str(REAUTHENTICATION_MS)
    return properties


class Secured:
    """The broker, what issues credentials, and the ``client.properties`` of each mode."""

    def __init__(self, folder: Path, stack: ExitStack, properties: Mapping[str, str]) -> None:
        self.folder = folder
        self.certificates = _certificates(folder / "certificates")
        self.tokens = stack.enter_context(TokenServer(self.certificates))
        self.identity = stack.enter_context(IdentityEndpoint(self.tokens))
        self.kdc = None if missing_for_kerberos() else stack.enter_context(Kdc(folder / "kerberos"))
        settings = {**broker_properties(self.certificates, self.tokens, self.kdc), **properties}
        self.signer = self._write_signer()
        with _java_options(self.tokens, self.kdc):
            self.kafka = stack.enter_context(SecuredKafka("4.3.1", properties=settings))
        _create_scram_users(self.kafka)

    def _write_signer(self) -> Path:
        """A folder with Amazon's signer of tokens, as far as its functions: its tokens are this token server's."""
        module = self.folder / "signer" / "aws_msk_iam_sasl_signer" / "MSKAuthTokenProvider.py"
        module.parent.mkdir(parents=True)
        module.with_name("__init__.py").touch()
        login = {"Authorization": "Basic " + base64.b64encode(f"ann:{PASSWORDS['client']}".encode()).decode()}
        module.write_text(
            "import json, ssl, time, urllib.request\n"
            "def generate_auth_token(region):\n"
            f"    assert region == {REGION!r}\n"
            f"    trust = ssl.create_default_context(cafile={str(self.certificates.ca)!r})\n"
            f"    request = urllib.request.Request({self.tokens.url!r}, b'', {login!r})\n"
            "    with urllib.request.urlopen(request, context=trust) as response:\n"
            f"        return json.load(response)['access_token'], int(1000 * (time.time() + {TOKEN_LIFETIME_S}))\n"
        )
        return module.parents[1]

    def client_properties(self, mode: str) -> dict[str, str]:
        """Java's keys for a mode, one of `MODES`."""
        listener, mechanism = MODES[mode]
        if not listener:
            return {"bootstrap.servers": self.kafka.bootstrap_servers}
        found = {"bootstrap.servers": self.kafka.address(listener), "security.protocol": LISTENERS[listener]}
        if "SSL" in LISTENERS[listener]:
            found |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(self.certificates.ca)}
        if mechanism:
            found |= {"sasl.mechanism": mechanism, **self._login(mode, mechanism)}
        if mode == "Azure Event Hubs":  # which is known by its host
            found["bootstrap.servers"] += f",{EVENT_HUBS}:9093"
        return found | self._key_store(mode)

    def _login(self, mode: str, mechanism: str) -> dict[str, str]:
        if mechanism == "GSSAPI":
            assert self.kdc
            how = "useTicketCache=true"
            if mode == "Kerberos with a keytab":
                how = f'useKeyTab=true keyTab="{self.kdc.keytab("ann")}" principal="ann@{REALM}"'
            login = f"com.sun.security.auth.module.Krb5LoginModule required {how};"
            return {"sasl.jaas.config": login, "sasl.kerberos.service.name": "kafka"}
        if mode == "Azure Event Hubs":
            return {}
        if mechanism == "OAUTHBEARER":
            options = f'clientId="ann" clientSecret="{PASSWORDS["client"]}" scope="kafka"'
            return {
                "sasl.jaas.config": f"{_MODULES}.oauthbearer.OAuthBearerLoginModule required {options};",
                "sasl.oauthbearer.token.endpoint.url": self.tokens.url,
                "https.ca.location": str(self.certificates.ca),
            }
        if mechanism == "AWS_MSK_IAM":
            package = "software.amazon.msk.auth.iam"
            handler = f"{package}.IAMClientCallbackHandler"
            login = f"{package}.IAMLoginModule required;"
            return {"sasl.jaas.config": login, "sasl.client.callback.handler.class": handler}
        module = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
        options = f'username="{USER}" password="{PASSWORDS[mechanism]}"'
        return {"sasl.jaas.config": f"{_MODULES}.{module}LoginModule required {options};"}

    def _key_store(self, mode: str) -> dict[str, str]:
        folder = self.certificates.folder
        if mode == "mTLS with PEM":
            return {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(folder / "client.pem")}
        if mode == "mTLS with inline PEM":
            key = (folder / "client.key").read_text().replace("\n", " ")
            chain = self.certificates.client.read_text().replace("\n", " ")
            return {"ssl.keystore.type": "PEM", "ssl.keystore.key": key, "ssl.keystore.certificate.chain": chain}
        passwords = {"ssl.keystore.password": PASSWORDS["store"], "ssl.key.password": PASSWORDS["key"]}
        if mode == "mTLS with PKCS#12":
            return {"ssl.keystore.type": "PKCS12", "ssl.keystore.location": str(folder / "client.p12"), **passwords}
        return {}

    def write(self, mode: str, **more: str) -> Path:
        """The ``client.properties`` of a mode as a file."""
        path = self.folder / f"{re.sub('[^a-z0-9]+', '-', mode.lower())}.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in {**self.client_properties(mode), **more}.items()))
        return path

    def secrets(self) -> dict[str, bytes]:
        """Everything that must appear in no output, by a name for it."""
        found = {f"password {name}": password.encode() for name, password in PASSWORDS.items()}
        lines = (self.certificates.folder / "client.key").read_bytes().splitlines()[1:-1]
        found |= {f"line {number} of the key": line for number, line in enumerate(lines) if len(line) > 40}
        found |= {f"token {n}": each.rpartition(".")[2].encode() for n, each in enumerate(self.tokens.tokens)}
        return found


MODES = {  # listener and mechanism
    "plaintext": ("", ""),
    "TLS": ("TLS", ""),
    "mTLS with PEM": ("MTLS", ""),
    "mTLS with inline PEM": ("MTLS", ""),
    "mTLS with PKCS#12": ("MTLS", ""),
    "PLAIN": ("PLAIN", "PLAIN"),
    "SCRAM-SHA-256": ("SCRAM", "SCRAM-SHA-256"),
    "SCRAM-SHA-512": ("SCRAM", "SCRAM-SHA-512"),
    "OAUTHBEARER": ("OAUTH", "OAUTHBEARER"),
    "MSK IAM": ("OAUTH", "AWS_MSK_IAM"),
    "Azure Event Hubs": ("OAUTH", "OAUTHBEARER"),
    "Kerberos with a keytab": ("KERBEROS", "GSSAPI"),
    "Kerberos with the ticket cache": ("KERBEROS", "GSSAPI"),
}


def _signing_key(certificates: Certificates) -> Any:
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    return load_pem_private_key(certificates.key("token").read_bytes(), None)


def _certificates(folder: Path) -> Certificates:
    folder.mkdir()
    made = Certificates(folder)
    made.make("broker", *made.signed(), "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost")
    made.make("token", *made.signed())
    for name in ("broker", "client"):
        (folder / f"{name}.pem").write_text((folder / f"{name}.key").read_text() + (folder / f"{name}.crt").read_text())
    made.pkcs12("client", password=PASSWORDS["store"])
    return made


@contextmanager
def _java_options(tokens: TokenServer, kdc: Kdc | None) -> Iterator[None]:
    """Options of Java for a broker: the realm, and where it may read keys from."""
    options = [f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={tokens.keys.as_uri()}"]
    options += [f"-Djava.security.krb5.conf={kdc.config}"] if kdc else []
    before = os.environ.get("JAVA_TOOL_OPTIONS")
    os.environ["JAVA_TOOL_OPTIONS"] = " ".join([*([before] if before else []), *options])
    try:
        yield
    finally:
        if before is None:
            del os.environ["JAVA_TOOL_OPTIONS"]
        else:
            os.environ["JAVA_TOOL_OPTIONS"] = before


def _create_scram_users(kafka: Kafka) -> None:
    from confluent_kafka import admin as kafka_admin

    api: Any = kafka_admin
    admin = api.AdminClient({**kafka.client_config(), "log_level": 0})
    mechanisms = {"SCRAM-SHA-256": "SCRAM_SHA_256", "SCRAM-SHA-512": "SCRAM_SHA_512"}
    changes = [
        api.UserScramCredentialUpsertion(
            USER, api.ScramCredentialInfo(getattr(api.ScramMechanism, name), 4096), PASSWORDS[mechanism].encode()
        )
        for mechanism, name in mechanisms.items()
    ]
    for change in changes:
        for future in admin.alter_user_scram_credentials([change]).values():
            future.result()


def leaks(data: bytes, secrets: Mapping[str, bytes]) -> set[str]:
    """Names of the secrets that occur in an output, as they are or in an encoding."""
    return {name for name, secret in secrets.items() if any(form in data for form in _forms(secret))}


def _forms(secret: bytes) -> Iterable[bytes]:
    text = secret.decode()
    yield from (secret, text.encode("utf-16-le"), secret.hex().encode(), urllib.parse.quote(text).encode())
    for before in range(3):  # at each position in a base64 text, without the characters that others change
        encoded = base64.b64encode(b"\0" * before + secret)
        yield encoded[4 if before else 0 : len(encoded) // 4 * 4 - 4]
