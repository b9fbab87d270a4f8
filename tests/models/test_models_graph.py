"""Models as a whole: order, circles, unknown tables, selection, lineage from model to model."""

import pytest

from tests.models.folder import CARTS, LINES, Folder
from tidemark.errors import ConfigError, UnknownModel
from tidemark.models.lineage import Fields, Source, origins, readers

pytestmark = pytest.mark.fast


@pytest.fixture
def chain(folder: Folder) -> Folder:
    """c reads b reads a; d stands alone."""
    folder.write("s/c.sql", "SELECT n + 1 AS m FROM s.b")
    folder.write("s/b.sql", "SELECT * FROM s.a")
    folder.write("s/a.sql", f"SELECT record.price AS n, record.sku FROM {LINES}")
    folder.write("s/d.sql", "SELECT 1 AS one")
    return folder


def names(folder: Folder, *selection: str) -> list[str]:
    return [model.name for model in folder.load().selected(selection)]


def test_models_run_behind_those_they_read(chain: Folder) -> None:
    assert names(chain) == ["s.a", "s.d", "s.b", "s.c"]


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        (["s.b"], ["s.b"]),
        (["+s.b"], ["s.a", "s.b"]),
        (["s.b+"], ["s.b", "s.c"]),
        (["+s.b+"], ["s.a", "s.b", "s.c"]),
        (["s.c", "s.d"], ["s.d", "s.c"]),
        (["s.*"], ["s.a", "s.d", "s.b", "s.c"]),
        (["s.[ad]"], ["s.a", "s.d"]),
    ],
)
def test_a_selection_reaches_up_and_down(chain: Folder, selection: list[str], expected: list[str]) -> None:
    assert names(chain, *selection) == expected


def test_a_wrong_name_is_told_with_the_nearest(chain: Folder) -> None:
    chain.write("silver/orders.sql", "SELECT 1 AS one")
    with pytest.raises(
        UnknownModel, match=r"no model 'silver.order'. Did you mean 'silver.orders'\? Models: s.a, s.b"
    ) as told:
        chain.load().selected(["silver.order"])
    assert told.value.exit_code == 2


def test_a_circle_is_named_as_it_is_read(chain: Folder) -> None:
    chain.write("s/a.sql", "SELECT m AS n FROM s.c")
    with pytest.raises(ConfigError, match="models read each other in a circle: ") as told:
        chain.load()
    circle = str(told.value).rpartition(": ")[2].rstrip(".").split(" reads ")
    turned = circle.index("s.a")
    assert circle[:-1][turned:] + circle[:-1][:turned] == ["s.a", "s.c", "s.b"]


def test_a_model_that_reads_itself_is_a_circle(folder: Folder) -> None:
    folder.write("s/a.sql", "SELECT n FROM s.a")
    with pytest.raises(ConfigError, match=r"in a circle: s\.a reads s\.a\."):
        folder.load()


def test_an_unknown_table_is_told_with_its_line_and_the_nearest(folder: Folder) -> None:
    folder.write("s/a.sql", "-- carts\nSELECT record.cart_id\nFROM bronze.default.shop.shop_cart__latest")
    with pytest.raises(ConfigError) as told:
        folder.load()
    assert str(told.value).endswith(
        "models/s/a.sql:3: there is no table bronze.default.shop.shop_cart__latest. Did you mean "
        f"'{CARTS}'? Models read models, Bronze, and what `models: external:` names."
    )


def test_names_differ_by_letter_case_as_they_do_in_the_lake(chain: Folder) -> None:
    chain.write("s/b.sql", "SELECT n FROM S.a")
    with pytest.raises(ConfigError, match=r"there is no table S\.a\. Did you mean 's\.a'\?"):
        chain.load()


def test_what_others_write_into_the_lake_may_be_read_if_it_is_named(folder: Folder) -> None:
    folder.configure(models={"folder": "models", "external": ["legacy.*"]})
    folder.write("s/a.sql", "SELECT x FROM legacy.orders")
    project = folder.load()
    assert project.models["s.a"].references == ("legacy.orders",)
    assert not project.reads("s.a")
    folder.write("s/a.sql", "SELECT x FROM legacies.orders")
    with pytest.raises(ConfigError, match=r"there is no table legacies\.orders"):
        folder.load()


def test_every_name_of_a_stream_of_every_tenant_is_known(folder: Folder) -> None:
    folder.configure(models="models", tenants=["t-1", "t2"])
    for place, end in enumerate(("", "__latest", "__changes", "__quarantine")):
        folder.write(
            f"s/m{place}.sql", f"SELECT 1 AS x FROM bronze.t_1.shop.shop_carts{end}, bronze.t2.shop.shop_carts{end}"
        )
    project = folder.load()
    places = {str(each.place) for name in project.models for each in project.streams(name)}
    assert places == {"t-1/shop/shop.carts", "t2/shop/shop.carts"}


# --- lineage ---------------------------------------------------------------------------------------------------------


def test_columns_are_followed_from_model_to_model(chain: Folder) -> None:
    project = chain.load()
    assert {name: list(map(str, of)) for name, of in project.lineage("s.a").columns.items()} == {
        "n": [f"{LINES}: record.price"],
        "sku": [f"{LINES}: record.sku"],
    }
    assert {name: list(map(str, of)) for name, of in project.lineage("s.b").columns.items()} == {
        "n": ["s.a: n"],
        "sku": ["s.a: sku"],
    }
    assert list(map(str, project.lineage("s.c").columns["m"])) == ["s.b: n"]


def test_the_fields_of_a_record_are_known_from_a_fixed_schema_or_from_the_lake(folder: Folder) -> None:
    folder.write("s/lines.sql", f"SELECT record.* FROM {LINES}")
    folder.write("s/carts.sql", f"SELECT record.* FROM {CARTS}")
    project = folder.load()
    assert list(project.lineage("s.lines").columns) == ["delivery", "line", "sku", "price"]
    assert project.lineage("s.carts").unknown == {"*"}
    stored = Fields({"record": Fields.named("cart_id", "changed")})
    assert list(project.lineage("s.carts", {CARTS: stored}).columns) == ["cart_id", "changed"]


def test_a_column_is_followed_to_its_origin_and_to_its_readers(chain: Folder) -> None:
    lineages = chain.load().lineages()
    assert origins(lineages, "s.c", "m") == [Source(LINES, "record.price")]
    assert origins(lineages, "s.d", "one") == []
    assert readers(lineages, "s.a", "N") == [Source("s.b", "n")]
    assert readers(lineages, LINES, "record") == [Source("s.a", "n"), Source("s.a", "sku")]
    assert readers(lineages, "s.c", "m") == []
