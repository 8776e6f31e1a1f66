"""One real broker for every test that needs one."""

from collections.abc import Iterator

import pytest

from toolkit.lab import Kafka


def pytest_configure(config: pytest.Config) -> None:
    """Warnings are errors, but for two of kafka-python's own that no one here can cure."""
    # It reads its message schemas in a way that Python 3.11 and 3.12 call deprecated (3.13 took that back).
    config.addinivalue_line("filterwarnings", "ignore:(read|open)_text is deprecated:DeprecationWarning")
    # It leaves the socket of a connection that fails to the garbage collector.
    config.addinivalue_line("filterwarnings", "ignore:unclosed <(ssl.SSLS|socket.s)ocket:ResourceWarning")


@pytest.fixture(scope="session", autouse=True)
def own_audit_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test, and no command that it runs, writes to the audit file of whoever runs it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KAFKA_TXN_AUDIT_FILE", str(tmp_path_factory.mktemp("audit") / "audit.jsonl"))
        yield


@pytest.fixture(scope="session")
def kafka() -> Iterator[Kafka]:
    """Kafka 4.3.1, one broker; it lets a producer write to a partition that it never added, as older brokers do."""
    from toolkit.lab.incidents import EVERYDAY  # it imports kafka-python, which has to wait for the filters above

    with Kafka("4.3.1", properties=EVERYDAY.properties) as broker:
        yield broker
