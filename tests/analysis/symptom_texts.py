"""Errors as clients print them that cannot be reproduced here, and texts that are unrelated to transactions.

``symptom_texts.tsv`` has the expected symptom, the client that prints the text, its source, and the text, in which
``\\n`` and ``\\t`` are a newline and a tab; what is unrelated has the text only.
"""

import csv
from pathlib import Path

with Path(__file__).with_suffix(".tsv").open(newline="", encoding="utf-8") as file:
    _ROWS = [
        (symptom, client, source, text.replace("\\n", "\n").replace("\\t", "\t"))
        for symptom, client, source, text in list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))[1:]
    ]

CITED = [row for row in _ROWS if row[0]]
UNRELATED = ["", " \n\t ", *(text for symptom, *_, text in _ROWS if not symptom)]
