"""The one direction of imports, read from the source."""

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parent.parent / "toolkit"
ROOMS = ["ground", "formats", "analysis", "sources", "actions", "views", "spark", "lab", "cli"]
HEAVY = {
    "kafka": {"sources/live/client"},
    "pyspark": {"spark"},
    "plotly": {"views/plots"},
    "numba": {"formats"},
    "mcp": {"views/agent"},
    "ipywidgets": {"views/panel", "views/live"},
    "prometheus_client": {"sources/recording/metrics.py"},
}
MODULES = sorted(ROOT.rglob("*.py"))
FOLDERS = sorted({path.parent for path in MODULES})
CIRCLES: set[str] = set()  # folders still to be given a direction; none may join them


def room(path: Path) -> str:
    parts = path.relative_to(ROOT).parts
    if len(parts) > 1 and parts[0] not in {"config", "schema"}:  # a package on the ground
        return parts[0]
    return "cli" if path.stem in {"cli", "connections", "__main__"} else "ground"


@cache
def imports(path: Path) -> list[tuple[str, bool]]:
    """Every imported module of a file, with whether only the type checker sees it."""
    found: list[tuple[str, bool]] = []

    def visit(node: ast.AST, typing_only: bool) -> None:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            typing_only = True
        if isinstance(node, ast.Import):
            found.extend((alias.name, typing_only) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found.append((node.module or "", typing_only))
            found.extend((f"{node.module}.{alias.name}", typing_only) for alias in node.names)
        for child in ast.iter_child_nodes(node):
            visit(child, typing_only)

    visit(ast.parse(path.read_text()), typing_only=False)
    return found


def room_of_module(name: str) -> str:
    parts = name.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in ROOMS else "ground"


def all_imports() -> Iterator[tuple[Path, str]]:
    """Each module with each name that it imports; the front door, which re-exports lazily, apart."""
    return ((path, name) for path in MODULES if path != ROOT / "__init__.py" for name, _ in imports(path))


def test_imports_only_point_down() -> None:
    ours = [(path, name) for path, name in all_imports() if name.split(".")[0] == "toolkit"]
    assert len(ours) > 1_000
    up = [each for each in ours if ROOMS.index(room_of_module(each[1])) > ROOMS.index(room(each[0]))]
    assert up == []


def test_analysis_is_pure() -> None:
    impure = {"kafka", "confluent_kafka", "socket", "time"}
    names = [(path, name) for path, name in all_imports() if room(path) == "analysis"]
    assert len(names) > 100
    assert [each for each in names if each[1].startswith("toolkit.sources") or each[1].split(".")[0] in impure] == []


def test_each_heavy_import_is_in_one_package() -> None:
    elsewhere = []
    for path, name in all_imports():
        module = path.relative_to(ROOT).as_posix()
        homes = HEAVY.get(name.split(".")[0])
        if homes is not None and homes.isdisjoint({module, *map(str, PurePosixPath(module).parents)}):
            elsewhere.append((module, name))
    assert elsewhere == []


def direct_imports(folder: Path) -> dict[str, set[str]]:
    """The children of a folder, its modules and folders, by the child that imports them."""
    below = {".".join(path.relative_to(ROOT.parent).with_suffix("").parts): path for path in folder.rglob("*.py")}
    of_folder = {path.parent: name.removesuffix(".__init__") for name, path in below.items() if path.stem == "__init__"}
    child = {name: path.relative_to(folder).parts[0] for name, path in below.items()}
    child |= {name: path.relative_to(folder).parts[0] for path, name in of_folder.items() if path != folder}
    found: dict[str, set[str]] = {}
    for name, path in below.items():
        if path == folder / "__init__.py":
            continue  # a front door imports what it hands on
        imported = {child[module] for module, _ in imports(path) if module in child}
        found.setdefault(child[name], set()).update(imported - {child[name]})
    return found


def circle_in(folder: Path) -> list[str]:
    try:
        TopologicalSorter(direct_imports(folder)).prepare()
    except CycleError as error:
        circle: list[str] = error.args[1]
        return circle
    return []


def test_imports_within_a_folder_have_one_direction() -> None:
    circles = {folder.relative_to(ROOT).as_posix(): circle for folder in FOLDERS if (circle := circle_in(folder))}
    assert circles.keys() == CIRCLES, circles
