"""Which tests run, on which worker, and the real brokers that tests of a worker share."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import is_hypothesis_test
from xdist.remote import Producer
from xdist.workermanage import WorkerController

from tests import sentences
from tests.brokers import EVERY_WORKERS, Brokers
from tests.groups import GroupScheduling, group_of, order, send_folder, write_groups
from tests.spark.settings import QUICK
from tests.tiers import is_full, set_tier
from toolkit.lab import Kafka

if TYPE_CHECKING:  # these import kafka-python, which warns before warnings are filtered
    from tests.acls import Acls
    from toolkit import Cluster

# Container images set it, and each of hundreds of processes of a run would compile the toolkit again.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# kafka-python reads its message schemas in a way that Python 3.11 and 3.12 call deprecated (3.13 took that back). Other
# files of fixtures import it before `pytest_configure`.
warnings.filterwarnings("ignore", "(read|open)_text is deprecated", DeprecationWarning)

STARTS_KAFKA = {"brokers", "guarded", "history", "segments"}  # fixtures, by way of others too


def pytest_configure(config: pytest.Config) -> None:
    """Warnings are errors, but for two of kafka-python's own that no one here can cure."""
    config.addinivalue_line("filterwarnings", "ignore:(read|open)_text is deprecated:DeprecationWarning")
    # It leaves the socket of a connection that fails to the garbage collector.
    config.addinivalue_line("filterwarnings", "ignore:unclosed <(ssl.SSLS|socket.s)ocket:ResourceWarning")
    set_tier(config.getoption("markexpr"))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(
    session: pytest.Session, config: pytest.Config, items: list[pytest.Item]
) -> Iterator[None]:
    """Leave the full tier out unless ``-m`` names it, and put what takes long first."""
    for module in {item.module for item in items if isinstance(item, pytest.Function)}:
        module.all = all_of_some
    for item in items:
        if not STARTS_KAFKA.isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker("lab")
    if is_full():
        for item in items:
            if item.get_closest_marker("longer") or is_hypothesis_test(getattr(item, "obj", None)):
                item.add_marker("full")
                if not item.get_closest_marker("timeout"):
                    item.add_marker(pytest.mark.timeout(3600))
    else:
        left_out = [item for item in items if item.get_closest_marker("full")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("full")]
    yield
    if config.getoption("random_order_enabled", False):
        # The plugin separates tests that share a module parameter, and each would start its own broker.
        session._fixturemanager.pytest_collection_modifyitems(items)
    else:
        items.sort(key=order)
    write_groups(config, items)


NOT_EMPTY: dict[tuple[str, int], bool] = {}  # file and line of each `all` in a test: whether it ever had a value


def all_of_some(values: Iterable[object]) -> bool:
    """The `all` of test modules."""
    found, caller = list(values), sys._getframe(1)
    if caller.f_code.co_name.startswith("test_"):
        place = caller.f_code.co_filename, caller.f_lineno
        NOT_EMPTY[place] = NOT_EMPTY.get(place, False) or bool(found)
    return all(found)


@pytest.fixture(autouse=True)
def whole_sentences(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test has only sentences that are stored, whole; one of random values has others each time.

    The second tier has more and other random values.
    """
    is_random = is_full() or hasattr(getattr(request.node, "obj", None), "hypothesis")
    yield from [None] if is_random else sentences.checked(request.node.nodeid)


@pytest.fixture(scope="module", autouse=True)
def no_all_of_nothing(request: pytest.FixtureRequest) -> Iterator[None]:
    """An `all` that is of nothing in each test of a module proves nothing: it would hold whatever the code does."""
    yield
    config = request.config
    if not config.option.keyword and not any("::" in each for each in config.args):
        empty = [line for (file, line), some in NOT_EMPTY.items() if file == str(request.path) and not some]
        assert not empty, f"all() of nothing, in lines {empty}"


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: WorkerController) -> None:
    """Before a worker starts."""
    send_folder(node)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> GroupScheduling:
    """Workers take groups of tests; see `tests.groups`."""
    return GroupScheduling(config, log)


@pytest.fixture(scope="session", autouse=True)
def own_audit_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test, and no command that it runs, writes to the audit file of whoever runs it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KAFKA_TXN_AUDIT_FILE", str(tmp_path_factory.mktemp("audit") / "audit.jsonl"))
        yield


@pytest.fixture(scope="session", autouse=True)
def small_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Commands and notebooks start a Spark for little data."""
    folder = tmp_path_factory.mktemp("spark")
    (folder / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in QUICK.items()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_CONF_DIR", str(folder))
        yield


BROKERS = pytest.StashKey[Brokers]()


@pytest.fixture(scope="session")
def brokers(pytestconfig: pytest.Config) -> Iterator[Brokers]:
    """The clusters that tests of this worker share."""
    shared = pytestconfig.stash[BROKERS] = Brokers()
    yield shared
    shared.stop()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """The clusters of a group end with it."""
    yield
    if nextitem and group_of(nextitem) != group_of(item) and (shared := item.config.stash.get(BROKERS, None)):
        shared.stop(keep=[EVERY_WORKERS])


@pytest.fixture(scope="session")
def kafka(brokers: Brokers) -> Iterator[Kafka]:
    """Kafka 4.3.1, one broker; it lets a producer write to a partition that it never added, as older brokers do."""
    from toolkit.lab.incidents import EVERYDAY  # it imports kafka-python, which has to wait for the filters above

    with brokers.use("4.3.1", EVERYDAY) as kafka:
        yield kafka


@pytest.fixture(scope="module")
def cluster(kafka: Kafka) -> Iterator[Cluster]:
    """A connection to that broker."""
    from toolkit import Cluster

    with Cluster(kafka.bootstrap_servers) as connected:
        yield connected


@pytest.fixture
def lab(brokers: Brokers, request: pytest.FixtureRequest) -> Iterator[Kafka]:
    """The cluster of a version and a setup; see `tests.brokers.on_cluster`."""
    with brokers.use(*request.param) as kafka:
        yield kafka


@pytest.fixture(scope="module")
def guarded() -> Iterator[Kafka]:
    """A broker with an authorizer and the users of `tests.acls`."""
    from tests.acls import SECRETS
    from toolkit.lab.incidents import EVERYDAY

    with Kafka("4.3.1", properties=EVERYDAY.properties, users=SECRETS, super_users=["admin"]) as kafka:
        yield kafka


@pytest.fixture(scope="module")
def admin(guarded: Kafka) -> Iterator[Cluster]:
    from toolkit import Cluster

    with Cluster(guarded.client_config("admin")) as cluster:
        yield cluster


@pytest.fixture
def acls(admin: Cluster) -> Iterator[Acls]:
    from tests.acls import Acls

    rules = Acls(admin)
    rules.clear()
    yield rules
    rules.clear()
