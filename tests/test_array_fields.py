"""A wrong field of a structured array is an error of mypy: the types know the fields of the dtypes."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from toolkit.analysis.log.log_transactions import LOG_TRANSACTION, LogTransactionField
from toolkit.formats.log.headers import HEADER, HeaderField

pytestmark = pytest.mark.xdist_group("mypy")

ROOT = Path(__file__).resolve().parent.parent
SNIPPET = """\
import numpy as np

from toolkit.analysis.log.log_transactions import LOG_TRANSACTION, LogTransactions, finish, partial_transactions
from toolkit.analysis.log.stable_sort import take_rows
from toolkit.formats.log.headers import HEADER, Array, Headers

headers: Headers = np.zeros(2, HEADER)
log_transactions: LogTransactions = np.zeros(2, LOG_TRANSACTION)
rows: Array = np.arange(2)


def right() -> Headers:
    headers["size"] = headers["base_offset"] - headers[0]["last_offset"]
    log_transactions["start"][rows] = log_transactions[rows]["first_offset"]
    for header in headers[:1]:
        print(header["size"], finish(partial_transactions(headers))["start"], len(headers), headers.size)
    return take_rows(headers, rows)


def wrong() -> None:
    headers["first_offset"]  # wrong
    headers["sizes"] = 1  # wrong
    headers["sizes"][rows] = 1  # wrong
    headers[0]["sizes"]  # wrong
    headers[rows]["sizes"]  # wrong
    headers[1:]["sizes"]  # wrong
    headers.copy()["sizes"]  # wrong
    take_rows(headers, rows)["sizes"]  # wrong
    [header["sizes"] for header in headers]  # wrong
    [headers[name] for name in ("size", "sizes")]  # wrong
    log_transactions["base_offset"]  # wrong
    log_transactions["ends"] = 1  # wrong
    log_transactions[0]["ends"]  # wrong
    log_transactions[rows]["ends"]  # wrong
    finish(partial_transactions(headers))["ends"]  # wrong
    partial_transactions(log_transactions)  # wrong
    take_rows(log_transactions, rows)["ends"]  # wrong
"""


@pytest.mark.parametrize(("dtype", "names"), [(HEADER, HeaderField), (LOG_TRANSACTION, LogTransactionField)])
def test_the_type_has_the_fields_of_the_array(dtype: np.dtype[Any], names: Any) -> None:
    assert get_args(names) == dtype.names


@pytest.mark.full
def test_a_wrong_field_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "snippet.py"
    file.write_text(SNIPPET)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-pretty", "--no-error-summary", str(file)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
    )
    errors = {int(line) for line in re.findall(r"snippet\.py:(\d+): error", done.stdout)}
    expected = {number for number, line in enumerate(SNIPPET.splitlines(), 1) if line.endswith("# wrong")}
    assert errors == expected, done.stdout + done.stderr
