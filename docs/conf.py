"""The docs site: ``sphinx-build -W --keep-going -b dirhtml docs build/docs``."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent)]

from site_text import substitutions

import toolkit
from toolkit.schema.verdict import DOCS_URL

project = "kafka-txn-toolkit"
author = "the kafka-txn-toolkit maintainers"
copyright = "the kafka-txn-toolkit maintainers, Apache-2.0"
version = release = toolkit.__version__

extensions = [
    "generated_pages",
    "myst_nb",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_copybutton",
    "sphinx_design",
]
templates_path = ["_templates"]
exclude_patterns = ["_ext", "_static", "_templates"]
default_role = "py:obj"
smartquotes = False  # it would make one dash of the two of an option

myst_enable_extensions = ["colon_fence", "deflist", "substitution"]
myst_heading_anchors = 3
myst_substitutions = substitutions()

nb_execution_mode = "off"  # tests run the notebooks; pages show what is stored
nb_merge_streams = True
nb_ipywidgets_js = {}

toc_object_entries_show_parents = "hide"
autodoc_typehints = "none"  # numpydoc has them
autosummary_generate = True
numpydoc_show_class_members = False

html_theme = "pydata_sphinx_theme"
html_title = "kafka-txn"
html_baseurl = DOCS_URL
html_static_path = ["_static"]
html_context = {"default_mode": "auto"}
html_show_sourcelink = False
html_favicon = "_static/favicon.svg"
html_sidebars = {"quickstart": []}
html_css_files = ["site.css"]
html_theme_options = {"show_toc_level": 2, "navigation_with_keys": False, "header_links_before_dropdown": 7}
