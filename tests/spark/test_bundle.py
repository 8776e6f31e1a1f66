"""The bundle for Databricks, ``notebooks/databricks.yml``: its fields, its SQL on local Delta tables, and its tasks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from databricks.bundles.alerts import Alert
from databricks.bundles.dashboards import Dashboard
from databricks.bundles.genie_spaces import GenieSpace
from databricks.bundles.jobs import Job

from toolkit import Recording
from toolkit.errors import UsageError
from toolkit.lab import Kafka, samples
from toolkit.spark.databricks_tasks import main
from toolkit.spark.pipeline import VIEWS, create_views
from toolkit.spark.pipeline.pipeline_run import run
from toolkit.spark.pipeline.stored_tables import KEPT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
BUNDLE = yaml.safe_load((NOTEBOOKS / "databricks.yml").read_text())
FILES = [path for pattern in BUNDLE["include"] for path in sorted(NOTEBOOKS.glob(pattern))]
RESOURCES: Mapping[str, Any] = {
    kind: resources for path in FILES for kind, resources in yaml.safe_load(path.read_text())["resources"].items()
}
TYPES: Mapping[str, type[Any]] = {"alerts": Alert, "dashboards": Dashboard, "genie_spaces": GenieSpace, "jobs": Job}
SCHEMA = "${var.catalog}.${var.schema}"

DASHBOARD = json.loads((NOTEBOOKS / "databricks" / RESOURCES["dashboards"]["lso_dashboard"]["file_path"]).read_text())
DATASETS = {each["name"]: "".join(each["queryLines"]) for each in DASHBOARD["datasets"]}
GENIE = RESOURCES["genie_spaces"]["lso_questions"]["serialized_space"]
QUESTIONS = {each["question"][0]: each["sql"][0] for each in GENIE["instructions"]["example_question_sqls"]}


@pytest.mark.parametrize("kind", TYPES)
def test_every_field_is_one_of_databricks(kind: str) -> None:
    assert RESOURCES.keys() == TYPES.keys()
    for resource in RESOURCES[kind].values():
        TYPES[kind].from_dict(resource)
        with pytest.raises(ValueError, match="misspelt"):
            TYPES[kind].from_dict({**resource, "misspelt": 1})


def test_every_variable_and_parameter_is_defined() -> None:
    text = "".join(path.read_text() for path in FILES)
    assert {*re.findall(r"\$\{var\.(\w+)\}", text)} == BUNDLE["variables"].keys()
    for job in RESOURCES["jobs"].values():
        names = {each["name"] for each in job["parameters"]}
        assert {*re.findall(r"job\.parameters\.([\w-]+)", str(job))} == names


def test_the_tasks_are_in_the_package_and_the_folder() -> None:
    scripts = (NOTEBOOKS.parent / "pyproject.toml").read_text()
    for task in tasks():
        if (wheel := task.get("python_wheel_task")) is not None:
            assert f'{wheel["entry_point"]} = "{main.__module__}:{main.__name__}"\n' in scripts
            assert f'name = "{wheel["package_name"]}"\n' in scripts
        else:
            job = task["notebook_task"]
            notebook = json.loads((NOTEBOOKS / "databricks" / job["notebook_path"]).read_text())
            (cell,) = (each for each in notebook["cells"] if "parameters" in each["metadata"].get("tags", ()))
            assert job["base_parameters"].keys() <= {line.split(" = ")[0] for line in cell["source"]}


def tasks() -> Iterator[Any]:
    """Those of all jobs."""
    for job in RESOURCES["jobs"].values():
        yield from job["tasks"]


def arguments(job: str, **values: str) -> list[str]:
    """Arguments of the first task of a job, with values of some variables of the bundle; the others are empty."""
    definition = RESOURCES["jobs"][job]
    parameters = {each["name"]: each["default"] for each in definition["parameters"]}

    def filled(text: str) -> str:
        text = re.sub(r"\{\{job\.parameters\.([\w-]+)\}\}", lambda found: parameters[found[1]], text)
        text = text.replace(SCHEMA, "${var.output}")
        return re.sub(r"\$\{var\.(\w+)\}", lambda found: values.get(found[1], ""), text)

    return [filled(each) for each in definition["tasks"][0]["python_wheel_task"]["parameters"]]


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
    if name in {"held_now", "totals", "held_by_day", "holders", "incidents"}:
        assert found.count() > 0
    for placed in DASHBOARD["pages"][0]["layout"]:
        (query,) = (each["query"] for each in placed["widget"]["queries"])
        assert query["datasetName"] in DATASETS
        fields = {each["name"] for each in query["fields"]}
        assert {*re.findall(r"'fieldName': '(\w+)'", str(placed["widget"]["spec"]))} == fields
        assert query["datasetName"] != name or fields <= {*found.columns}


@pytest.mark.parametrize("alert", RESOURCES["alerts"].values(), ids=RESOURCES["alerts"])
def test_an_alert_has_a_number_while_a_transaction_hangs(alert: Any, tables: SparkSession) -> None:
    (row,) = tables.sql(alert["query_text"].replace(f"{SCHEMA}.", "")).collect()
    assert row[alert["evaluation"]["source"]["name"]] > 0, "of minutes, fewer than 15 in this sample"


def test_a_hold_on_a_partition_that_could_not_be_read_is_not_over(spark: SparkSession) -> None:
    """Its finding is `unknown`, without a time: the alert was OK, and the dashboard showed no hanging transaction."""
    columns = "'orders' AS topic, 0 AS partition, 'id' AS topic_id"
    held = "CAST(NULL AS TIMESTAMP) AS held_to, 1200000 AS least_ms"
    unread = "'unknown' AS verdict, NULL AS start_offset, CAST(NULL AS BIGINT) AS held_ms, 0 AS records_held"
    spark.sql(f"SELECT {columns}, {held}").createOrReplaceTempView("lso_holds")
    spark.sql(f"SELECT {columns}, {unread}").createOrReplaceTempView("lso_held_now")
    alert = RESOURCES["alerts"]["lso_held"]["query_text"].replace(f"{SCHEMA}.", "")
    assert float(spark.sql(alert).collect()[0]["held_minutes"]) == 20
    assert spark.sql(DATASETS["totals"]).collect()[0]["unknown"] == 1


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_sql_of_a_question_runs(question: str, tables: SparkSession) -> None:
    tables.sql(QUESTIONS[question].replace(f"{SCHEMA}.", "")).collect()
    names = {each["identifier"].removeprefix(f"{SCHEMA}.") for each in GENIE["data_sources"]["tables"]}
    assert {*re.findall(rf"{re.escape(SCHEMA)}\.(\w+)", QUESTIONS[question])} <= names <= KEPT.keys() | VIEWS.keys()


def secrets(password: str) -> Any:
    known = {("kafka", "password"): password}
    return SimpleNamespace(secrets=SimpleNamespace(get=lambda scope, key: known[scope, key]))


def test_the_pipeline_job_reads_a_volume(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = str(samples.load("late-message").log_dir().paths[0])
    main(arguments("lso_pipeline", logs=source, output=str(tmp_path / "tables")), spark=spark)
    shown = capsys.readouterr().out
    assert "log_transactions: " in shown
    assert "unknown" in shown, "a copy that nobody asserts to be consistent proves nothing"
    with pytest.raises(UsageError, match="Neither or both of --input and --bootstrap-server"):
        main(arguments("lso_pipeline", logs=source, output="x", bootstrap_server="broker:9092"))


@pytest.mark.lab
def test_the_recorder_job_logs_in_with_a_secret_of_a_scope(tmp_path: Path) -> None:
    with Kafka(users={"watcher": "s3cr3t"}, super_users=["watcher"]) as kafka:
        config = tmp_path / "client.properties"
        config.write_text("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=watcher\n")
        login = {"bootstrap_server": kafka.bootstrap_servers, "command_config": str(config), "scope": "kafka"}
        command = arguments("lso_recorder", recording=str(tmp_path / "recording"), **login)
        command[command.index("--duration") + 1] = "11s"
        main(command, dbutils=secrets("s3cr3t"))
    found = Recording(tmp_path / "recording").samples()
    assert len(found) >= 1
    assert found["error"].isna().all()
