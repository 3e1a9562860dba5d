"""A tree over the classes: read from every kind of file, refused with the row, rolled up as a slow search would."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from pals.labels.taxonomy import NO_NODE, Taxonomy, TaxonomyNode
from pals.util.errors import InputError

BELOW = {None: ("birds", "mammals"), "birds": ("gulls", "terns"), "gulls": ("herring gull", "kittiwake"),
         "terns": ("arctic tern", "common tern"), "mammals": ("seal",)}  # fmt: skip
BIRDS = Taxonomy.from_parents({name: parent for parent, names in BELOW.items() for name in names})
TABLE = """label,parent
birds,
gulls,birds
terns,birds
mammals,
herring gull,gulls
kittiwake,gulls
arctic tern,terns
common tern,terns
seal,mammals
"""
PATHS = """birds;gulls;herring gull
birds;gulls;kittiwake
birds;terns;arctic tern;
birds;terns;common tern

mammals;seal
"""
FILES = {
    "table.csv": TABLE,
    "other_way_round.csv": "\n".join(";".join(reversed(line.split(","))) for line in TABLE.splitlines()),
    "words.tsv": TABLE.replace("label,parent", "Taxon,Parent name").replace(",", "\t").replace("birds\t\n", "birds\tNA\n"),
    "paths.txt": PATHS,
    "path_column.csv": "id,path\n" + "".join(f"{n},{line}\n" for n, line in enumerate(PATHS.split("\n")) if line),
    "nested.json": '{"birds": {"gulls": ["herring gull", "kittiwake"],'
    ' "terns": ["arctic tern", "common tern"]}, "mammals": "seal"}',
    "named.json": '[{"name": "birds", "children": ['
    '{"name": "gulls", "id": 7, "children": [{"name": "herring gull"}, "kittiwake"]},'
    ' {"label": "terns", "children": ["arctic tern", {"label": "common tern"}]}]}, {"name": "mammals", "children": ["seal"]}]',
}


@pytest.mark.parametrize("name", FILES)
def test_every_kind_of_file_gives_the_same_tree(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(FILES[name], encoding="utf-8-sig")
    assert Taxonomy.read(tmp_path / name) == BIRDS


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    tree = Taxonomy.from_parents({"=SUM(A1)": "", "a, b": "=SUM(A1)", '"c"': "=SUM(A1)"})
    (tmp_path / "t.csv").write_text(tree.to_csv(), encoding="utf-8")
    assert Taxonomy.read(tmp_path / "t.csv") == tree


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("t.csv", "label,parent\na,\nb,c\nc,d\nd,b\n", r"t\.csv, row 3: .*cycle: 'b' > 'c' > 'd' > 'b'; give one"),
        ("t.csv", "label,parent\na,a\n", r"t\.csv, row 2: .*cycle: 'a' > 'a'"),
        ("t.csv", "label,parent\nbirds,\ngull,brids\n", r"t\.csv, row 3: Unknown parent 'brids': did you mean 'birds'.*own"),
        ("t.csv", "label,parent\na,\nb,\nc,a\nc,b\n", r"row 5: the label 'c' appears here under 'b' and earlier \(.*row 4"),
        ("t.csv", "label,parent\na,\nb,a\nb,a\n", r"row 4: the label 'b' appears here"),
        ("t.csv", "label,parent\n,a\n", r"row 2: a parent \('a'\) without a label"),
        ("t.txt", "a;b;c\nd;b;e\n", r"t\.txt, row 2: the label 'b' appears here under 'd'"),
        ("t.txt", "a;b\na;c\na;b\n", r"row 3: the path to 'b' is already in row 1"),
        ("t.txt", "a;b\nc;b\n", r"row 2: the label 'b' appears here under 'c' and earlier .*row 1\) under 'a'"),
        ("t.txt", "a;;c\n", r"row 1: the path 'a;;c' has an empty part"),
        ("t.csv", "kind,of\na,b\n", r"t\.csv is not a taxonomy: it starts with 'kind,of'\. Give a table"),
        ("t.csv", "", r"t\.csv is empty"),
        ("t.json", '{"a": ["b", 3]}', r"t\.json, 'a': a node is a name, not 3"),
        ("t.csv", "label,parent\n", r"t\.csv names no label\. Give each class"),
        ("t.json", "[]", r"t\.json names no label"),
        ("t.json", '{"a": ["b"],\n\n "a": ["c"]}', r"t\.json: one object has the label 'a' twice"),
        ("t.json", '{"a": ["b"', r"line 1: this is not JSON"),
        ("t.json", '{"a": ["b"],\n "c": ["b"]}', r"t\.json, 'c' > 'b': the label 'b' .* earlier \(.*t\.json, 'a' > 'b'\)"),
        ("t.json", '{"a": {"x\\u0079": []},\n"xy": []}', r"'xy': the label 'xy' .* as a root and earlier \(.*'a' > 'xy'\)"),
        ("t.json", "[" * 100_000, "nested too deeply"),
    ],
)  # fmt: skip
def test_bad_files_are_named_with_the_row_and_the_remedy(name: str, text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        Taxonomy.read(tmp_path / name)


def test_a_missing_file_and_bytes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        Taxonomy.read(tmp_path / "none.csv")
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(InputError, match="this is a pipe or a device, not a file"):
        Taxonomy.read(tmp_path / "pipe.csv")
    (tmp_path / "t.csv").write_bytes(b"label,parent\n\xff,\n")
    with pytest.raises(InputError, match="is not UTF-8 text"):
        Taxonomy.read(tmp_path / "t.csv")


def test_shape_and_order_of_entries() -> None:
    entries = [TaxonomyNode("kittiwake", "gulls"), TaxonomyNode("gulls", "birds"), TaxonomyNode("birds", None)]
    assert Taxonomy.of(entries).nodes == ("birds", "gulls", "kittiwake")
    assert BIRDS.leaves == ("herring gull", "kittiwake", "arctic tern", "common tern", "seal")
    assert BIRDS.below("birds") == BIRDS.leaves[:4] and BIRDS.below("seal") == ("seal",)
    assert BIRDS.below("whale") == ("whale",) and BIRDS.depth_T.tolist() == [1, 2, 3, 3, 2, 3, 3, 1, 2]
    assert np.diff(BIRDS.span_T2).ravel().tolist() == [4, 2, 1, 1, 2, 1, 1, 1, 1]
    levels = [[BIRDS.nodes[node] for node in row] for row in BIRDS.level_LC]
    assert levels == [["birds"] * 4 + ["mammals"], ["gulls", "gulls", "terns", "terns", "seal"], list(BIRDS.leaves)]
    assert BIRDS.branch_of(["seal", "kittiwake"]).tolist() == [1, 0]


def test_levels_and_classes_left_out() -> None:
    names = ("life", *BIRDS.nodes)
    one_root = Taxonomy(names, (NO_NODE, *(parent + 1 for parent in BIRDS.parents)))
    assert one_root.num_levels == BIRDS.num_levels == 3 and Taxonomy.from_parents({"a": None, "b": None}).num_levels == 1
    assert Taxonomy.from_parents({"x": None, "a": "x", "b": "x"}).num_levels == 1
    kept = BIRDS.keep(["seal", "kittiwake"])
    assert kept.leaves == ("kittiwake", "seal") and kept.nodes == ("birds", "gulls", "kittiwake", "mammals", "seal")
    for name in ("whale", "gulls"):
        with pytest.raises(InputError, match=f"Unknown class '{name}'.*as a leaf"):
            BIRDS.keep([name])
    for sure in (0.49, 1.0, float("nan")):
        with pytest.raises(InputError, match=r"from 0\.5 to below 1"):
            BIRDS.roll_up(np.full((1, 5), 0.2), sure)
    for nodes, parents in ((("a", "b", "c"), (-1, -1, 0)), (("a", "a"), (-1, 0)), ((), ()), (("a",), (0,))):
        with pytest.raises(InputError, match="from_parents"):
            Taxonomy(nodes, parents)


def random_tree(rng: np.random.Generator) -> Taxonomy:
    parents: dict[str, str | None] = {}
    for number in range(int(rng.integers(2, 30))):
        above = int(rng.integers(-1, number)) if number else -1
        parents[f"n{number}"] = f"n{above}" if above >= 0 else None
    return Taxonomy.from_parents(parents)


@pytest.mark.parametrize("seed", range(20))
def test_spans_and_rolling_up_are_those_of_a_slow_search(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tree = random_tree(rng)
    below: dict[int, set[int]] = {node: set() for node in range(len(tree.nodes))}
    for place, leaf in enumerate(tree.leaf_C.tolist()):
        node = leaf
        while node >= 0:
            below[node].add(place)
            node = tree.parents[node]
    assert all(set(range(*tree.span_T2[node])) == members for node, members in below.items())
    found = tree.node_of_spans(tree.span_T2[:, 0], tree.span_T2[:, 1])
    for node, members in below.items():
        alike = [other for other in below if below[other] == members]
        assert found[node] == max(alike, key=lambda other: tree.depth_T[other])
    assert tree.node_of_spans(np.array([0]), np.array([len(tree.leaves) + 1])).tolist() == [NO_NODE]
    share_NC = rng.dirichlet(np.full(len(tree.leaves), 0.3), size=20)
    node_N, probability_N = tree.roll_up(share_NC, 0.7)
    for share_C, node, probability in zip(share_NC, node_N, probability_N, strict=True):
        mass = {one: sum(share_C[c] for c in members) for one, members in below.items()}
        sure = [one for one in below if mass[one] > 0.7]
        if not sure:
            assert node == NO_NODE and np.isnan(probability)
        else:
            assert tree.depth_T[node] == max(tree.depth_T[one] for one in sure)
            assert probability == pytest.approx(mass[node])
