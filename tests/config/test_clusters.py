"""The file of named clusters: what it may say, and one sentence for what it may not, which shows no value of it."""

from pathlib import Path

import pytest

from toolkit.config.clusters import CLUSTERS_VARIABLE, NamedCluster, clusters_file, named_clusters
from toolkit.errors import UsageError


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "clusters.toml"
    monkeypatch.setenv(CLUSTERS_VARIABLE, str(path))
    return path


def test_paths_are_relative_to_the_file(file: Path) -> None:
    file.write_text(
        '[prod-eu]\nbootstrap-server = "b1:9092,b2:9092"\ncommand-config = "eu.properties"\ntimeout = "1m"\n'
        'flink-checkpoint = "/checkpoints/job"\n\n["us west"]\ncommand-config = "/etc/us.properties"\n'
    )
    assert named_clusters() == {
        "prod-eu": NamedCluster(
            name="prod-eu",
            bootstrap_server="b1:9092,b2:9092",
            command_config=str(file.parent / "eu.properties"),
            timeout=60,
            flink_checkpoints=(Path("/checkpoints/job"),),
        ),
        "us west": NamedCluster(name="us west", command_config="/etc/us.properties"),
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "names no cluster"),
        ('bootstrap-server = "b:9092"', "stands in no table"),
        ('[a]\nsasl.password = "s3cr3t"', "has 'sasl', which is none of"),
        ('[a]\nbootstrap-servers = "s3cr3t:1"', "has 'bootstrap-servers', which is none of"),
        ("[a]\nbootstrap-server = 9092", "bootstrap-server is no text"),
        ('[a]\ntimeout = "30s"', "has neither bootstrap-server nor command-config"),
        ('[a]\nbootstrap-server = "b:9092"\ntimeout = 30', "timeout is no duration"),
        ('[a]\nbootstrap-server = "b:9092"\ntimeout = "s3cr3t"', "timeout is no duration"),
        ('[a]\nbootstrap-server = "b:9092"\ntimeout = "1ms"', "timeout is too short"),
        ('[a]\nbootstrap-server = "b:9092"\nflink-checkpoint = [1]', "flink-checkpoint is no path"),
        ('["--all"]\nbootstrap-server = "b:9092"', "is no name for --cluster"),
        ("[a\n", "is not TOML"),
    ],
)
def test_what_is_wrong_in_it_is_a_sentence(file: Path, text: str, said: str) -> None:
    file.write_text(text)
    with pytest.raises(UsageError) as raised:
        named_clusters()
    assert said in str(raised.value)
    assert str(file) in str(raised.value)
    assert "s3cr3t" not in str(raised.value)


def test_a_file_that_does_not_exist_is_named(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        named_clusters()
    monkeypatch.delenv(CLUSTERS_VARIABLE)
    assert clusters_file().name == "clusters.toml"
    assert clusters_file().parent.name == "kafka-txn"
