"""Read a topic by Spark with each of several configurations, and write all that Spark shows of it to files.

``python -m tests.spark.security_modes FOLDER TOPIC '{"mode": "client.properties"}'`` prints the batches read, by mode.
"""

from __future__ import annotations

import json
import re
import sys
import traceback
from pathlib import Path

from tests.spark.canary import free_port, pages
from toolkit.spark import register
from toolkit.spark.spark_session import local_session


def main(folder: Path, topic: str, files: dict[str, str]) -> None:
    (folder / "events").mkdir()
    port = free_port()
    settings = {
        "spark.driver.memory": "1g",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": (folder / "events").as_uri(),
        "spark.eventLog.enabled": "true",
        "spark.eventLog.rolling.enabled": "false",
        "spark.log.level": "INFO",
        "spark.python.worker.reuse": "true",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "true",
        "spark.ui.port": str(port),
    }
    spark = local_session(master="local[2]", config=settings)
    register(spark)
    batches: dict[str, int] = {}
    shown: list[str] = []
    for mode, file in files.items():
        frame = spark.read.format("kafka_log_live").options(commandConfig=file, subscribe=topic).load()
        frame.explain(extended=True)
        batches[mode] = frame.count()
        if shown:
            continue
        try:
            frame.selectExpr("assert_true(1 = 2)").collect()
        except Exception as error:  # noqa: BLE001
            shown.append("".join(traceback.format_exception(error)))
    (folder / "errors.txt").write_text("\n".join(shown))
    for path, body in pages(f"http://127.0.0.1:{port}", follow=False):
        page = folder / "pages" / f"{re.sub('[^A-Za-z]+', '-', path)[:150].strip('-')}.html"
        page.parent.mkdir(exist_ok=True)
        with page.open("a") as file_of_page:
            file_of_page.write(body)
    spark.stop()
    print(json.dumps({"batches": batches}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3]))
