"""Jars are downloaded once, completely or not at all, and each error names the artifact and the reason."""

import subprocess
import sys
import threading
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.jar_lists import jar_list
from tests.process import PATIENCE_S, started
from toolkit.errors import SetupError
from toolkit.lab import broker
from toolkit.lab.broker import LISTS, fetch_jars
from toolkit.spark import spark_session
from toolkit.spark.spark_session import delta_settings

UNREACHABLE = "https://127.0.0.1:1/maven/"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for module in (broker, spark_session):
        monkeypatch.setattr(module, "user_cache_path", lambda name: tmp_path)
    return tmp_path / "kafka"


FETCH_PROGRAM = """
import sys, time
from pathlib import Path
from toolkit.lab import broker

def fetch(version, directory):
    with Path(sys.argv[1], "fetched").open("a") as file:
        file.write(version)
    (directory / "jars").mkdir(parents=True)
    while not Path(sys.argv[1], "all have asked").exists():
        time.sleep(0.01)

broker.user_cache_path, broker._fetch = lambda name: Path(sys.argv[1]), fetch
print("asks", flush=True)
print(broker.fetch_jars("4.3.1"))
"""


def test_two_processes_download_once(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FETCH_PROGRAM, str(tmp_path)]
    with ExitStack() as stack:
        processes = [stack.enter_context(started(command, stdout=subprocess.PIPE, text=True)) for _ in range(4)]
        stdouts = [each.stdout for each in processes if each.stdout]
        assert [output.readline() for output in stdouts] == ["asks\n"] * 4
        (tmp_path / "all have asked").touch()
        outputs = [each.communicate(timeout=PATIENCE_S)[0] for each in processes]
    assert outputs == [f"{tmp_path / 'kafka' / '4.3.1'}\n"] * 4
    assert (tmp_path / "fetched").read_text() == "4.3.1"


def test_an_incomplete_download_is_not_cached(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted_fetch(version: str, directory: Path) -> None:
        (directory / "jars").mkdir(parents=True)
        raise KeyboardInterrupt

    monkeypatch.setattr(broker, "_fetch", interrupted_fetch)
    with pytest.raises(KeyboardInterrupt):
        fetch_jars("4.3.1")
    assert [each.name for each in cache.iterdir()] == ["4.3.1.lock"]

    def complete_fetch(version: str, directory: Path) -> None:
        (directory / "jars").mkdir(parents=True)
        (directory / "jars" / "kafka.jar").touch()

    (cache / "4.3.1.partial" / "jars").mkdir(parents=True)  # leftovers of a killed process
    (cache / "4.3.1.partial" / "jars" / "half.jar").touch()
    monkeypatch.setattr(broker, "_fetch", complete_fetch)
    assert [each.name for each in fetch_jars("4.3.1").iterdir()] == ["kafka.jar"]


def test_an_unreachable_repository_is_reported(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_TXN_MAVEN", UNREACHABLE)
    with pytest.raises(SetupError, match=r"https://127\.0\.0\.1:1/maven/.*Connection refused") as error:
        fetch_jars("4.3.1")
    assert "could not be fetched" in error.value.what
    assert [each.name for each in cache.iterdir()] == ["4.3.1.lock"]


class LoginPage(BaseHTTPRequestHandler):
    """A repository that serves a login page for every path."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"Please log in.")

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_a_jar_with_a_wrong_digest_is_not_kept(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), LoginPage) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            monkeypatch.setenv("KAFKA_TXN_MAVEN", f"http://127.0.0.1:{server.server_port}")
            with pytest.raises(SetupError, match=r"\.jar does not match its digest"):
                fetch_jars("4.3.1")
            with pytest.raises(SetupError, match=r"/delta-spark_4\.2_2\.13-.*\.jar does not match its digest"):
                delta_settings("4.2.0")
        finally:
            server.shutdown()
            thread.join(60)
    cached_files = {each.name for each in [*cache.iterdir(), *(cache.parent / "delta").iterdir()]}
    assert cached_files == {"4.3.1.lock", "lock"}


@pytest.mark.full
@pytest.mark.lab
def test_the_listed_jars_match_ivys_resolution() -> None:
    assert jar_list("4.3.1") == (LISTS / "4.3.1.txt").read_text()


@pytest.mark.lab
def test_the_mirror_of_the_maven_settings_is_used(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".m2").mkdir()
    (tmp_path / ".m2" / "settings.xml").write_text(
        '<settings xmlns="http://maven.apache.org/SETTINGS/1.0.0"><mirrors><mirror><id>ours</id>'
        f"<mirrorOf>central</mirrorOf><url>{UNREACHABLE}</url></mirror></mirrors></settings>"
    )
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    with pytest.raises(SetupError, match=UNREACHABLE):
        fetch_jars("4.3.1")
