"""The bundle for Databricks: its types, its SQL on local Delta tables, and what its jobs run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from databricks.bundles.core import Bundle
from databricks.bundles.jobs import Job

from toolkit import Recording
from toolkit.errors import UsageError
from toolkit.lab import Kafka, samples
from toolkit.spark.bundle.bundle_sql import ALERTS, DATASETS, QUESTIONS, TABLES
from toolkit.spark.bundle.dashboard import columns_of, dashboard
from toolkit.spark.bundle.resources import SCHEMA, SCRIPT, load_resources, pipeline_job
from toolkit.spark.bundle.tasks import main
from toolkit.spark.pipeline import VIEWS, create_views
from toolkit.spark.pipeline.pipeline_run import run
from toolkit.spark.pipeline.tables.stored_tables import KEPT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
DEFINITION = yaml.safe_load((ROOT / "notebooks" / "databricks.yml").read_text())


def test_the_bundle_has_every_resource() -> None:
    resources = load_resources(Bundle(target="prod"))
    assert resources.jobs.keys() == {"lso_pipeline", "lso_recorder"}
    assert resources.alerts.keys() == ALERTS.keys()
    assert [len(each) for each in (resources.dashboards, resources.genie_spaces)] == [1, 1]
    job: Any = pipeline_job().as_dict()
    assert job["max_concurrent_runs"] == 1
    assert [each["task_key"] for each in job["tasks"]] == ["pipeline", "notebook"]
    assert (ROOT / "notebooks" / job["tasks"][1]["notebook_task"]["notebook_path"]).exists()


def test_every_variable_and_parameter_is_defined() -> None:
    resources = load_resources(Bundle(target="prod"))
    groups = (resources.jobs, resources.alerts, resources.dashboards, resources.genie_spaces)
    text = str([each.as_dict() for group in groups for each in group.values()])
    assert {*re.findall(r"\$\{var\.(\w+)\}", text)} == DEFINITION["variables"].keys()
    for resource in resources.jobs.values():
        job: Any = resource.as_dict()
        names = {each["name"] for each in job["parameters"]}
        assert {*re.findall(r"job\.parameters\.([\w-]+)", str(job))} == names
    (script,) = re.findall(rf'^{SCRIPT} = "(.*)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert script == f"{main.__module__}:{main.__name__}"
    (function,) = DEFINITION["python"]["resources"]
    assert function == f"{load_resources.__module__}:{load_resources.__name__}"


@pytest.mark.full
@pytest.mark.xdist_group("mypy")
def test_a_misspelt_field_is_an_error_of_mypy(tmp_path: Path) -> None:
    source = (ROOT / "toolkit" / "spark" / "bundle" / "resources.py").read_text()
    copy = tmp_path / "misspelt.py"
    copy.write_text(source.replace("max_concurrent_runs=", "max_concurent_runs=", 1).replace("scope:", "scop:", 1))
    command = [sys.executable, "-m", "mypy", str(copy)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1
    assert re.search('Unexpected keyword argument "max_concurent_runs"', done.stdout)
    assert re.search('has no attribute "scope"', done.stdout)


def test_a_misspelt_field_is_refused_when_it_is_read() -> None:
    with pytest.raises(ValueError, match="max_concurent_runs"):
        Job.from_dict({"name": "pipeline", "max_concurent_runs": 1})  # type: ignore[typeddict-unknown-key]


@pytest.fixture(scope="module")
def folder(spark_process: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Tables of a hanging transaction."""
    folder = str(tmp_path_factory.mktemp("bundle") / "tables")
    sample = samples.load("late-message")
    run(spark_process.newSession(), str(sample.log_dir().paths[0]), folder, consistent_copy=True)
    return folder


@pytest.fixture
def tables(spark: SparkSession, folder: str) -> SparkSession:
    """A session with their views."""
    create_views(spark, folder)
    return spark


@pytest.mark.parametrize("name", DATASETS)
def test_the_sql_of_the_dashboard_runs(name: str, tables: SparkSession) -> None:
    found = tables.sql(DATASETS[name])
    assert found.columns == columns_of(DATASETS[name])
    if name in {"held_now", "totals", "held_by_day", "holders", "incidents"}:
        assert found.count() > 0


def test_every_widget_shows_columns_of_its_query() -> None:
    page = dashboard()
    names = {each["name"] for each in page["datasets"]}
    for placed in page["pages"][0]["layout"]:
        (query,) = (each["query"] for each in placed["widget"]["queries"])
        assert query["datasetName"] in names
        fields = {each["name"] for each in query["fields"]}
        assert fields <= {*columns_of(DATASETS[query["datasetName"]])}
        assert {*re.findall(r"'fieldName': '(\w+)'", str(placed["widget"]["spec"]))} == fields


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_has_a_number_while_a_transaction_hangs(name: str, tables: SparkSession) -> None:
    column, query, _ = ALERTS[name]
    (row,) = tables.sql(query.replace("{schema}.", "")).collect()
    assert row[column] > 0, "of minutes, fewer than 15 in this sample"


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_sql_of_a_question_runs(question: str, tables: SparkSession) -> None:
    tables.sql(QUESTIONS[question].replace("{schema}.", "")).collect()
    assert {*re.findall(r"\{schema\}\.(\w+)", QUESTIONS[question])} <= {*TABLES} <= KEPT.keys() | VIEWS.keys()
    assert SCHEMA == "${var.catalog}.${var.schema}"


def secrets(password: str) -> Any:
    known = {("kafka", "password"): password}
    return SimpleNamespace(secrets=SimpleNamespace(get=lambda scope, key: known[scope, key]))


def test_the_pipeline_job_reads_a_volume(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = str(samples.load("late-message").log_dir().paths[0])
    empty = ["--bootstrap-server", "", "--command-config", "", "--scope", ""]  # parameters of the job that are not set
    main(["pipeline", "--input", source, "--output", str(tmp_path / "tables"), *empty], spark=spark)
    shown = capsys.readouterr().out
    assert "log_transactions: " in shown
    assert "unknown" in shown, "a copy that nobody asserts to be consistent proves nothing"
    with pytest.raises(UsageError, match="Neither or both of --input and --bootstrap-server"):
        main(["pipeline", "--input", source, "--output", "x", "--bootstrap-server", "broker:9092"])


@pytest.mark.lab
def test_the_recorder_job_logs_in_with_a_secret_of_a_scope(tmp_path: Path) -> None:
    with Kafka(users={"watcher": "s3cr3t"}, super_users=["watcher"]) as kafka:
        config = tmp_path / "client.properties"
        config.write_text("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=watcher\n")
        arguments = ["--bootstrap-server", kafka.bootstrap_servers, "--command-config", str(config), "--scope", "kafka"]
        command = ["record", "--output", str(tmp_path / "recording"), "--duration", "11s", *arguments]
        main(command, dbutils=secrets("s3cr3t"))
    found = Recording(tmp_path / "recording").samples()
    assert len(found) >= 1
    assert found["error"].isna().all()
