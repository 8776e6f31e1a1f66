"""The resources of the bundle, in the typed classes of databricks-bundles: a misspelt field is an error of mypy."""

from __future__ import annotations

import hashlib

from databricks.bundles.alerts import (
    Alert,
    AlertV2Evaluation,
    AlertV2Notification,
    AlertV2Operand,
    AlertV2OperandColumn,
    AlertV2OperandValue,
    ComparisonOperator,
)
from databricks.bundles.alerts import CronSchedule as AlertSchedule
from databricks.bundles.core import Bundle, Resources, Variable, variables
from databricks.bundles.dashboards import Dashboard
from databricks.bundles.genie_spaces import GenieSpace
from databricks.bundles.jobs import (
    CronSchedule,
    Environment,
    Job,
    JobEnvironment,
    JobParameterDefinition,
    NotebookTask,
    PauseStatus,
    PythonWheelTask,
    Source,
    Task,
    TaskDependency,
)

from toolkit.spark.bundle.bundle_sql import ALERTS, INSTRUCTIONS, QUESTIONS, TABLES
from toolkit.spark.bundle.dashboard import dashboard

PACKAGE, SCRIPT = "kafka-txn-toolkit", "kafka-txn-databricks"
ENVIRONMENT = "toolkit"
ENVIRONMENT_VERSION = "4"
HOURLY, EVERY_15_MINUTES = "0 0 * * * ?", "0 0/15 * * * ?"
SCHEMA = "${var.catalog}.${var.schema}"


@variables
class Variables:
    """Variables of ``databricks.yml``."""

    catalog: Variable[str]
    schema: Variable[str]
    logs: Variable[str]
    recording: Variable[str]
    bootstrap_server: Variable[str]
    command_config: Variable[str]
    scope: Variable[str]
    warehouse_id: Variable[str]


def load_resources(bundle: Bundle) -> Resources:
    """Everything that the bundle deploys.

    `bundle`: the bundle; its variables are resolved by Databricks.
    """
    resources = Resources()  # type: ignore[no-untyped-call]
    resources.add_job("lso_pipeline", pipeline_job())
    resources.add_job("lso_recorder", recorder_job())
    for name, alert in alerts().items():
        resources.add_alert(name, alert)
    resources.add_dashboard(
        "lso_dashboard",
        Dashboard(
            display_name="Kafka: who holds the LSO",
            warehouse_id=Variables.warehouse_id,
            dataset_catalog=Variables.catalog,
            dataset_schema=Variables.schema,
            serialized_dashboard=dashboard(),
        ),
    )
    resources.add_genie_space(
        "lso_questions",
        GenieSpace(
            title="Kafka: who held the LSO", warehouse_id=Variables.warehouse_id, serialized_space=genie_space()
        ),
    )
    return resources


def pipeline_job() -> Job:
    """The pipeline, then notebook 8 on the same logs; one run at a time, as only one may write to a target."""
    source = {"input": Variables.logs, "bootstrap-server": Variables.bootstrap_server}
    login = {"command-config": Variables.command_config, "scope": Variables.scope}
    return Job(
        name="Kafka: LSO pipeline",
        max_concurrent_runs=1,
        schedule=CronSchedule(quartz_cron_expression=HOURLY, timezone_id="UTC"),
        environments=[_environment()],
        parameters=[JobParameterDefinition(name=name, default=value) for name, value in {**source, **login}.items()],
        tasks=[
            Task(
                task_key="pipeline",
                environment_key=ENVIRONMENT,
                python_wheel_task=PythonWheelTask(
                    package_name=PACKAGE,
                    entry_point=SCRIPT,
                    parameters=["pipeline", "--output", SCHEMA, *_from_job(*source, *login)],
                ),
            ),
            Task(
                task_key="notebook",
                depends_on=[TaskDependency(task_key="pipeline")],
                environment_key=ENVIRONMENT,
                notebook_task=NotebookTask(
                    notebook_path="08_databricks.ipynb",
                    source=Source.WORKSPACE,
                    base_parameters={"source": Variables.logs, "target": SCHEMA, "scope": Variables.scope},
                ),
            ),
        ],
    )


def recorder_job() -> Job:
    """The recorder, for nearly an hour at a time; paused until there is a cluster to record."""
    login = ("bootstrap-server", "command-config", "scope")
    values = (Variables.bootstrap_server, Variables.command_config, Variables.scope)
    return Job(
        name="Kafka: recorder",
        max_concurrent_runs=1,
        schedule=CronSchedule(quartz_cron_expression=HOURLY, timezone_id="UTC", pause_status=PauseStatus.PAUSED),
        environments=[_environment()],
        parameters=[
            JobParameterDefinition(name=name, default=value) for name, value in zip(login, values, strict=True)
        ],
        tasks=[
            Task(
                task_key="record",
                environment_key=ENVIRONMENT,
                python_wheel_task=PythonWheelTask(
                    package_name=PACKAGE,
                    entry_point=SCRIPT,
                    parameters=["record", "--output", "${var.recording}", "--duration", "58m", *_from_job(*login)],
                ),
            )
        ],
    )


def _environment() -> JobEnvironment:
    spec = Environment(environment_version=ENVIRONMENT_VERSION, dependencies=["dist/*.whl", "plotly>=6"])
    return JobEnvironment(environment_key=ENVIRONMENT, spec=spec)


def _from_job(*names: str) -> list[str]:
    return [text for name in names for text in (f"--{name}", f"{{{{job.parameters.{name}}}}}")]


def alerts() -> dict[str, Alert]:
    """An LSO that is held for long, and transactions that Kafka will not end."""
    found = {}
    for name, (column, query, threshold) in ALERTS.items():
        evaluation = AlertV2Evaluation(
            comparison_operator=ComparisonOperator.GREATER_THAN,
            source=AlertV2OperandColumn(name=column),
            threshold=AlertV2Operand(value=AlertV2OperandValue(double_value=threshold)),
            notification=AlertV2Notification(notify_on_ok=True, retrigger_seconds=3600),
        )
        found[name] = Alert(
            display_name=f"Kafka: {name.replace('_', ' ')}",
            query_text=query.format(schema=SCHEMA),
            warehouse_id=Variables.warehouse_id,
            evaluation=evaluation,
            schedule=AlertSchedule(quartz_cron_schedule=EVERY_15_MINUTES, timezone_id="UTC"),
        )
    return found


def genie_space() -> dict[str, object]:
    """Tables, instructions and questions of the Genie space, as Databricks stores it."""
    return {
        "version": 2,
        "config": {"sample_questions": [{"id": _id(each), "question": [each]} for each in sorted(QUESTIONS, key=_id)]},
        "data_sources": {"tables": [{"identifier": f"{SCHEMA}.{name}"} for name in sorted(TABLES)]},
        "instructions": {
            "text_instructions": [{"id": _id("instructions"), "content": [f"{each}\n" for each in INSTRUCTIONS]}],
            "example_question_sqls": [
                {"id": _id(each), "question": [each], "sql": [QUESTIONS[each].format(schema=SCHEMA)]}
                for each in sorted(QUESTIONS, key=_id)
            ],
        },
    }


def _id(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()
