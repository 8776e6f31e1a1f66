"""Every way of logging in, on a real broker: each client connects, stays connected, and shows no secret."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.notebooks.running import own_folders
from tests.process import PATIENCE_S, ROOT
from tests.secured import MODES, REAUTHENTICATION_MS, REGION, TOKEN_LIFETIME_S, leaks, missing_for_kerberos, which
from toolkit import Cluster, Recording
from toolkit.config import ClientConfig
from toolkit.errors import AuthenticationFailed, BrokerError, ConnectionFailed
from toolkit.lab.clients import until
from toolkit.lab.incidents import EVERYDAY, INCIDENTS, StagedIncident
from toolkit.sources.live import broker_client
from toolkit.sources.live.coordinators import CoordinatorTopic
from toolkit.sources.live.transactions import read_committed, read_state_log

if TYPE_CHECKING:
    from tests.secured import Secured

pytestmark = pytest.mark.lab

# Every log record of every library, as a user sees it who looks for the reason of a failure.
LOUD = "import logging; logging.basicConfig(level=logging.DEBUG); from toolkit.cli import main; main()"
SAMPLES, INTERVAL_S = 4, 4  # longer than a token lives, and than a connection may go on without a new login
LOGINS_AGAIN = "Beginning SASL re-authentication"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    from tests.secured import Secured

    if not which("openssl") or not find_spec("cryptography"):
        pytest.skip(f"{'the package cryptography' if which('openssl') else 'openssl'} is missing")
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        made = Secured(tmp_path_factory.mktemp("secured"), stack, EVERYDAY.properties)
        for name, value in {**made.identity.environment, **(made.kdc.environment if made.kdc else {})}.items():
            patch.setenv(name, value)
        patch.setenv("AWS_REGION", REGION)
        patch.setenv("PYTHONPATH", str(made.signer), prepend=os.pathsep)  # of processes
        patch.syspath_prepend(made.signer)
        yield made


@pytest.fixture(scope="module")
def hanging(secured: Secured) -> StagedIncident:
    return INCIDENTS["never_added"](secured.kafka, topic="secured")


def check_available(mode: str) -> None:
    """Skip a mode, by the name of what is missing for it."""
    if mode.startswith("Kerberos") and (missing := missing_for_kerberos()):
        pytest.skip(f"{missing} is missing")


def available() -> list[str]:
    return [mode for mode in MODES if not (mode.startswith("Kerberos") and missing_for_kerberos())]


@pytest.mark.parametrize("mode", MODES)
def test_a_cluster_is_diagnosed(secured: Secured, hanging: StagedIncident, mode: str) -> None:
    check_available(mode)
    config = ClientConfig.from_properties(secured.write(mode))
    with Cluster(config) as cluster:
        (row,) = cluster.finding_rows(topics=[hanging.topic], partitions=[0], recheck_after=0)
        assert (row["verdict"], row["outcome"]) == ("hanging", "undecided")
        topic = CoordinatorTopic.read(cluster.client, "__transaction_state")
        log = read_state_log(cluster.client, topic, timeout=60)
        assert log.is_complete
        assert hanging.transactional_id in {each.transactional_id for each in log.transactions}
        if not mode.startswith("Kerberos"):  # for which librdkafka's packages are not built
            read = read_committed(cluster.config, hanging.topic, hanging.partition, 0, 1, timeout=60)
            assert read.reached == 1
        shown = f"{cluster!r} {cluster.config!r} {cluster.config} {config.masked()} {vars(cluster)}"
    assert leaks(shown.encode(), secured.secrets()) == set()


def test_the_search_finds_every_form_of_a_secret(secured: Secured) -> None:
    secrets = {"one": b"pl4in-Zq9f8e7d+/=", "other": b"unused-secret"}
    import base64

    for data in (b"x pl4in-Zq9f8e7d+/= x", base64.b64encode(b"ann:pl4in-Zq9f8e7d+/="), b"pl4in-Zq9f8e7d%2B/%3D"):
        assert leaks(data, secrets) == {"one"}, data
    path = secured.write("PLAIN")
    assert leaks(path.read_bytes(), secured.secrets()) == {"password PLAIN"}


@pytest.mark.parametrize("mode", ["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER", "Kerberos with a keytab", "mTLS with PEM"])
def test_refused_credentials_are_an_error_without_them(secured: Secured, mode: str, tmp_path: Path) -> None:
    check_available(mode)
    properties = secured.client_properties(mode)
    wrong = {"sasl.jaas.config": properties.get("sasl.jaas.config", "").replace("-Zq", "-Zqwrong")}
    if mode.startswith("Kerberos"):
        wrong["sasl.jaas.config"] = properties["sasl.jaas.config"].replace("ann@", "bob@")
    if mode.startswith("mTLS"):
        wrong = {"ssl.keystore.location": str(secured.certificates.folder / "other.pem")}
        pair = [secured.certificates.key("stranger"), secured.certificates.make("stranger")]
        Path(wrong["ssl.keystore.location"]).write_text("".join(each.read_text() for each in pair))
    with pytest.raises((AuthenticationFailed, BrokerError) if mode[0] != "m" else Exception) as refused:
        Cluster(properties | wrong)
    assert leaks(f"{refused.value!r} {refused.value}".encode(), secured.secrets()) == set()
    assert "Zqwrong" not in str(refused.value)


def test_what_a_listener_with_tls_refuses(secured: Secured) -> None:
    """A client without TLS, one that does not know its authority, and one without a certificate."""
    tls = {"bootstrap.servers": secured.kafka.address("TLS"), "security.protocol": "SSL"}
    with pytest.raises(ConnectionFailed, match=r"use TLS|closed it"):
        Cluster(tls["bootstrap.servers"], timeout=10)
    with pytest.raises(ConnectionFailed, match=r"ssl\.ca\.location"):
        Cluster(tls, timeout=10)
    mtls = {"bootstrap.servers": secured.kafka.address("MTLS"), "ssl.ca.location": str(secured.certificates.ca)}
    with pytest.raises(ConnectionFailed, match=mtls["bootstrap.servers"]):
        Cluster(tls | mtls, timeout=10)


def refused(cluster: Cluster) -> AuthenticationFailed | None:
    error = cluster.client.send([(1, broker_client.Metadata(topics=[]))])[0].error
    return error if isinstance(error, AuthenticationFailed) else None


def test_a_valid_token_survives_an_outage_of_its_endpoint(secured: Secured, hanging: StagedIncident) -> None:
    config = ClientConfig.from_properties(secured.write("OAUTHBEARER"))
    with Cluster(config) as cluster:
        secured.tokens.is_down = True
        try:
            error = until(lambda: refused(cluster), awaited="the end of the token")
        finally:
            secured.tokens.is_down = False
        assert "answered HTTP 503" in str(error)
        assert cluster.client.send_one(broker_client.Metadata(topics=[]), broker_id=1).brokers, "and it recovers"
    assert leaks(f"{error!r} {error}".encode(), secured.secrets()) == set()


def test_a_consumer_that_librdkafka_cannot_start_is_an_error(secured: Secured) -> None:
    config = ClientConfig({**secured.client_properties("TLS"), "ssl.curves.list": "no-such-curve"})
    with pytest.raises(BrokerError, match=r"^No read_committed consumer of librdkafka starts .*ssl.curves.list"):
        read_committed(config, "secured", 0, 0, 1, timeout=10)


@pytest.mark.full
def test_recorders_outlive_their_credentials_and_show_none(
    secured: Secured, hanging: StagedIncident, tmp_path: Path
) -> None:
    """At the most verbose: every output and file is searched for every secret of every mode."""
    issued = len(secured.tokens.tokens)

    def record(mode: str) -> subprocess.CompletedProcess[bytes]:
        arguments = ["--interval", f"{INTERVAL_S}s", "--samples", str(SAMPLES)]
        return loud(secured, mode, tmp_path, "record", "--output", str(tmp_path / mode), *arguments)

    modes = [mode for mode in available() if "PEM" not in mode and mode != "SCRAM-SHA-256"]
    with ThreadPoolExecutor(5) as pool:
        done = dict(zip(modes, pool.map(record, modes), strict=True))
    assert {mode: each.returncode for mode, each in done.items()} == dict.fromkeys(modes, 0), done
    assert 2 * max(TOKEN_LIFETIME_S, REAUTHENTICATION_MS / 1000) < (SAMPLES - 1) * INTERVAL_S
    assert len(secured.tokens.tokens) - issued > 2
    secrets = secured.secrets()
    for mode, each in done.items():
        recording = Recording(tmp_path / mode)
        samples = recording.samples()
        assert len(samples) == SAMPLES
        assert samples["error"].isna().all(), (mode, samples["error"].dropna().tolist())
        findings = recording.findings(topics=[hanging.topic], partitions=[0])
        assert set(findings["verdict"]) == {"hanging"}, mode
        assert (LOGINS_AGAIN in each.stderr.decode()) == bool(MODES[mode][1]), mode
        assert leaks(each.stdout + each.stderr, secrets) == set(), mode
        assert b"PARQUET" not in each.stderr
        address = secured.client_properties(mode)["bootstrap.servers"].partition(",")[0]
        assert leaks(each.stderr, {"control": address.encode()}), mode
    assert leaks_of_files(tmp_path, secrets) == {}


@pytest.mark.full
@pytest.mark.parametrize(
    "mode", ["mTLS with PKCS#12", "PLAIN", "OAUTHBEARER", "MSK IAM", "Azure Event Hubs", "Kerberos with a keytab"]
)
def test_an_action_and_its_audit_trail_show_no_secret(secured: Secured, tmp_path: Path, mode: str) -> None:
    check_available(mode)
    staged = INCIDENTS["never_added"](secured.kafka)
    target = f"{staged.topic}-{staged.partition}@{staged.start_offset}"
    topic = ["--topic", staged.topic, "--partition", "0", "--start-offset", str(staged.start_offset)]
    done = loud(secured, mode, tmp_path, "abort", *topic, "--recheck-after", "0", "--confirm", target)
    assert done.returncode == 0, done.stderr[-2000:]
    assert target in (tmp_path / "audit.jsonl").read_text()
    failed = loud(secured, mode, tmp_path, "diagnose", "--topic", "nowhere", "--partition", "0")
    assert failed.returncode == 4
    outputs = done.stdout + done.stderr + failed.stdout + failed.stderr
    assert leaks(outputs, secured.secrets()) == set()
    assert leaks_of_files(tmp_path, secured.secrets()) == {}


def loud(
    secured: Secured, mode: str, folder: Path, command: str, *arguments: str
) -> subprocess.CompletedProcess[bytes]:
    """A command with every log record of every library."""
    properties = str(secured.write(mode, debug="all"))
    return subprocess.run(
        [sys.executable, "-c", LOUD, command, *arguments, "--command-config", properties],
        cwd=ROOT,
        env={**os.environ, "KAFKA_TXN_AUDIT_FILE": str(folder / "audit.jsonl")},
        capture_output=True,
        timeout=PATIENCE_S,
    )


def leaks_of_files(folder: Path, secrets: Mapping[str, bytes]) -> dict[str, set[str]]:
    found = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return {name: names for name, data in found.items() if (names := leaks(data, secrets))}


@pytest.mark.full
def test_an_executed_notebook_shows_no_secret(secured: Secured, hanging: StagedIncident, tmp_path: Path) -> None:
    """With every log record, the sources' texts, a plan, and a traceback."""
    import nbclient
    import nbformat

    book = nbformat.reads('{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}', as_version=4)  # type: ignore[no-untyped-call]
    cells = [
        "import logging\nlogging.basicConfig(level=logging.DEBUG)\n"
        "from toolkit import connect\nfrom toolkit.views import show\nfrom toolkit.actions import plan_abort"
    ]
    for mode in available():
        address = secured.client_properties(mode)["bootstrap.servers"]
        topic = f"topics=[{hanging.topic!r}], partitions=[0], recheck_after=0"
        cells += [
            f"opened = connect({address!r}, command_config={str(secured.write(mode))!r})",
            f"findings = opened.source.findings({topic})\nshow(findings)",
            "plan_abort(opened.source, findings.iloc[0])",
            "opened, opened.source.config, vars(opened.source), dir(opened)",
            "opened.source.findings(topics=['nowhere'])",
        ]
    book.cells = [nbformat.v4.new_code_cell(each) for each in cells]  # type: ignore[no-untyped-call]
    environment = {**os.environ, **own_folders(tmp_path)}
    nbclient.NotebookClient(book, timeout=PATIENCE_S, allow_errors=True).execute(env=environment)
    text = json.dumps(book)
    (tmp_path / "executed.ipynb").write_text(text)
    failed = [str(cell.source) for cell in book.cells for each in cell.outputs if each.output_type == "error"]
    assert failed == ["opened.source.findings(topics=['nowhere'])"] * len(available()), text[-3000:]
    assert text.count(hanging.topic) > 5 * len(available())
    assert leaks_of_files(tmp_path, secured.secrets()) == {}
