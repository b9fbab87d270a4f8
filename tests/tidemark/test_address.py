import pytest

from tidemark.address import Address
from tidemark.errors import UsageError

pytestmark = pytest.mark.fast


@pytest.mark.parametrize(
    ("address", "text", "tenant"),
    [
        (Address.catalog("shop"), "catalog/shop", None),
        (Address.stream("default", "shop", "shop.carts"), "stream/default/shop/shop.carts", "default"),
        (Address.model("silver.carts"), "model/silver.carts", None),
        (Address.model('odd "name"'), 'model/odd "name"', None),
        (Address("feed", "diamonds"), "feed/diamonds", None),
    ],
)
def test_an_address_is_read_back_as_it_is_written(address, text, tenant):
    assert str(address) == text
    assert Address.parse(text) == address
    assert address.tenant == tenant


@pytest.mark.parametrize(
    "text",
    ["", "shop", "catalog", "catalog/", "catalog/a/b", "connectors/t/c/s", "stream/t/c", "stream/t/c/s/x", "stream//c/s"],
)
def test_a_text_that_is_no_address_is_refused_with_the_form(text):
    with pytest.raises(UsageError, match=r"is no address\. Write it as catalog/CONNECTION, stream/TENANT/"):
        Address.parse(text)


@pytest.mark.parametrize("bad", ["..", "a b", "x\n", "x" * 129])
def test_parts_of_an_address_that_become_parts_of_paths_are_checked(bad):
    for make in (
        lambda: Address.catalog(bad),
        lambda: Address.stream(bad, "c", "s"),
        lambda: Address.stream("t", bad, "s"),
        lambda: Address.parse(f"stream/t/c/{bad}"),
        lambda: Address.parse(f"feed/{bad}"),
    ):
        with pytest.raises(UsageError):
            make()
