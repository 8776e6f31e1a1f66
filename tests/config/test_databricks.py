"""Widgets and secret scopes of a fake ``dbutils``: Databricks does not run here."""

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from toolkit.config.client import config_from_scope, param
from toolkit.errors import NotFound, UsageError

SECRET = "Zq9-s3cr3t"
LOGIN = {"bootstrap.servers": "b1:9093", "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}


class Py4JJavaError(Exception):
    """Like py4j's error: Java's message is only text."""


class Widgets:
    def __init__(self, **values: str) -> None:
        self.values = values

    def get(self, name: str) -> str:
        if name == "broken":
            raise Py4JJavaError("An error occurred: java.lang.IllegalStateException: the driver is going down")
        if name not in self.values:
            raise Py4JJavaError(f"com.databricks.dbutils_v1.InputWidgetNotDefined: No input widget named {name} ...")
        return self.values[name]


class Secrets:
    def get(self, scope: str, key: str) -> str:
        if (scope, key) != ("kafka", "password"):
            raise Py4JJavaError(f"Secret does not exist with scope: {scope} and key: {key}")
        return SECRET


@pytest.fixture
def dbutils() -> Any:
    return SimpleNamespace(widgets=Widgets(source="/Volumes/main/kafka/logs"), secrets=Secrets())


def test_a_widget_wins_over_the_default(dbutils: Any) -> None:
    assert param("source", "lab", dbutils=dbutils) == "/Volumes/main/kafka/logs"
    assert param("target", "main.kafka", dbutils=dbutils) == "main.kafka"
    assert param("source", "lab") == "lab", "there is no dbutils here"
    with pytest.raises(Py4JJavaError, match="going down"):
        param("broken", "lab", dbutils=dbutils)


def test_secrets_are_read_from_a_scope_and_never_printed(dbutils: Any) -> None:
    config = config_from_scope(
        {**LOGIN, "sasl.username": "ann"}, {"sasl.password": "password"}, scope="kafka", dbutils=dbutils
    )
    assert config.librdkafka()["sasl.password"] == SECRET
    assert config.masked()["sasl.password"] == "[hidden]"
    assert SECRET not in repr(config)


def test_an_error_about_a_secret_does_not_show_it(dbutils: Any) -> None:
    with pytest.raises(NotFound, match=r"Secret 'other' of scope 'kafka' cannot be read") as caught:
        config_from_scope(LOGIN, {"sasl.password": "other"}, scope="kafka", dbutils=dbutils)
    assert caught.value.__context__ is None
    with pytest.raises(UsageError, match=r"sasl\.password is set twice: as an argument and from the scope"):
        config_from_scope(
            {**LOGIN, "sasl.password": "here"}, {"sasl.password": "password"}, scope="kafka", dbutils=dbutils
        )
    with pytest.raises(UsageError, match="which Kafka does not have") as refused:
        config_from_scope({**LOGIN, "security.protocol": "SSLL"}, {"sasl.password": "password"}, scope="kafka",
                          dbutils=dbutils)  # fmt: skip
    assert SECRET not in str(refused.value)
    with pytest.raises(UsageError, match="no dbutils here"):
        config_from_scope("b1:9093", {}, scope="kafka")


def test_the_notebooks_dbutils_is_found(dbutils: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["__main__"], "dbutils", dbutils, raising=False)
    assert param("source", "lab") == "/Volumes/main/kafka/logs"


def test_the_dbutils_of_ipython_is_found_in_other_kernels() -> None:
    code = """
import IPython
from types import SimpleNamespace
from traitlets.config import Config
config = Config({"HistoryManager": {"enabled": False}})
shell = IPython.core.interactiveshell.InteractiveShell.instance(user_ns={}, config=config)
shell.user_ns["dbutils"] = SimpleNamespace(widgets=SimpleNamespace(get=lambda name: "from the widget"))
from toolkit.config.client import param
print(param("source", "lab"))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout == "from the widget\n"
