"""What only S3 has: answers that get lost, look-alikes, and errors of a service."""

import pickle
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from tests.services.lookalike_s3 import ALL_CONDITIONS, Lookalike, lookalike_s3
from tests.services.lossy_proxy import LossyProxy, lossy_proxy
from tests.services.ports import free_port
from tests.services.s3 import S3Server
from tests.tidemark.store.conftest import FreeTime
from tidemark.errors import ObjectChanged, OutcomeUnknown, StoreError, StoreIgnoresConditions
from tidemark.store import ObjectStore, open_store
from tidemark.store.patience import RIDE_OUT
from tidemark.store.s3 import S3Store

pytestmark = pytest.mark.service


@pytest.fixture
def proxy(server: S3Server) -> Iterator[LossyProxy]:
    with lossy_proxy(server.endpoint) as proxy:
        yield proxy


@pytest.fixture
def far(proxy: LossyProxy, server: S3Server, s3_url: str, free_time: FreeTime) -> ObjectStore:
    """The same place as `s3_store`, seen through the proxy. Pauses cost no time."""
    bucket, _, prefix = s3_url.removeprefix("s3://").partition("/")
    patience = free_time.patience(RIDE_OUT)
    store = S3Store(bucket, prefix, endpoint=proxy.endpoint, region=server.region, patience=patience)
    store.conditional_deletes = True
    return store


def test_a_lost_answer_is_read_back_and_found_to_be_ours(far: ObjectStore, s3_store: ObjectStore, proxy: LossyProxy) -> None:
    proxy.plan.append("lose")
    etag = far.put_if_absent("mark", b"1")
    assert proxy.plan.count("lose") == 0
    found = s3_store.find("mark")
    assert found is not None
    assert (found.body, found.etag) == (b"1", etag)

    proxy.plan.append("lose")
    assert far.put_if_unchanged("mark", b"2", etag) != etag
    assert s3_store.read("mark") == b"2"
    # Each was sent once and read back once: a blind second try would have been told "changed" about its own write.
    assert proxy.seen == ["PUT lose", "HEAD forward"] * 2


def test_a_lost_answer_where_somebody_else_won_is_a_lost_race(
    far: ObjectStore, s3_store: ObjectStore, proxy: LossyProxy
) -> None:
    proxy.plan.extend(["lose", "lose"])
    proxy.before_forwarding = lambda: s3_store.put("mark", b"theirs")
    with pytest.raises(ObjectChanged, match="mark"):
        far.put_if_absent("mark", b"ours")
    etag = s3_store.put("mark", b"start")
    with pytest.raises(ObjectChanged, match="mark"):
        far.put_if_unchanged("mark", b"ours", etag)
    assert s3_store.read("mark") == b"theirs"


def test_a_write_that_was_overwritten_before_it_was_read_back_is_not_claimed(
    far: ObjectStore, s3_store: ObjectStore, proxy: LossyProxy
) -> None:
    etag = s3_store.put("mark", b"start")
    proxy.plan.append("swallow")
    proxy.before_forwarding = lambda: s3_store.delete("mark")
    with pytest.raises(ObjectChanged, match="deleted"):
        far.put_if_unchanged("mark", b"ours", etag)
    assert s3_store.find("mark") is None


@pytest.mark.parametrize("trouble", ["swallow", 409, 500, 503])
def test_a_write_that_did_not_happen_is_tried_again(
    far: ObjectStore, s3_store: ObjectStore, proxy: LossyProxy, trouble: str | int
) -> None:
    proxy.plan.append(trouble)
    etag = far.put_if_absent("mark", b"1")
    proxy.plan.append(trouble)
    far.put_if_unchanged("mark", b"2", etag)
    assert s3_store.read("mark") == b"2"


def test_a_second_try_that_meets_its_own_first_one_has_won(
    far: ObjectStore, s3_store: ObjectStore, proxy: LossyProxy
) -> None:
    """As when a proxy on the way sends the request twice: 412 about the writer's own object."""
    etag = s3_store.put("mark", b"1")
    proxy.plan.append("twice")
    far.put_if_unchanged("mark", b"2", etag)
    assert s3_store.read("mark") == b"2"
    assert proxy.seen == ["PUT twice", "HEAD forward"]


def test_an_answer_that_cannot_be_read_back_is_unknown_and_deletes_nothing(
    far: ObjectStore, s3_store: ObjectStore, proxy: LossyProxy
) -> None:
    proxy.plan.append("dark")
    with pytest.raises(OutcomeUnknown, match="may or may not have happened"):
        far.put_if_absent("mark", b"1")
    assert s3_store.read("mark") == b"1"


def test_a_service_that_stays_in_trouble_is_unknown(far: ObjectStore, proxy: LossyProxy) -> None:
    proxy.plan.extend([500] * 100)
    with pytest.raises(OutcomeUnknown):
        far.put_if_absent("mark", b"1")


def test_a_service_that_stays_in_conflict_is_no_unknown_outcome(far: ObjectStore, proxy: LossyProxy) -> None:
    proxy.plan.extend([409] * 100)
    with pytest.raises(StoreError, match="409") as refused:
        far.put_if_absent("mark", b"1")
    assert not isinstance(refused.value, OutcomeUnknown)


def test_a_body_that_breaks_off_is_read_again(far: ObjectStore, s3_store: ObjectStore, proxy: LossyProxy) -> None:
    s3_store.put("state", bytes(100_000))
    proxy.break_off_bodies = 2
    assert far.read("state") == bytes(100_000)


@pytest.mark.parametrize(
    "ignores", [*({one} for one in sorted(ALL_CONDITIONS)), ALL_CONDITIONS], ids=lambda each: ", ".join(sorted(each))
)
def test_a_service_that_ignores_conditions_is_refused_by_name(server: S3Server, ignores: set[str]) -> None:
    with lookalike_s3(Lookalike(obeys=ALL_CONDITIONS - ignores)) as lookalike:
        with pytest.raises(StoreIgnoresConditions, match="s3://bucket/x: this service accepts conditional writes"):
            open_store("s3://bucket/x", endpoint=lookalike.endpoint).probe()
        assert lookalike.objects == {}


def test_a_service_without_conditions_is_refused_by_name(server: S3Server) -> None:
    with lookalike_s3(Lookalike(offers_conditions=False)) as lookalike:
        with pytest.raises(StoreIgnoresConditions, match="does not offer conditional writes"):
            open_store("s3://bucket/x", endpoint=lookalike.endpoint).probe()
        assert lookalike.objects == {}


def test_a_service_that_drops_metadata_is_refused(server: S3Server) -> None:
    with lookalike_s3(Lookalike(keeps_metadata=False)) as lookalike:
        with pytest.raises(StoreError, match="metadata"):
            open_store("s3://bucket/x", endpoint=lookalike.endpoint).probe()
        assert lookalike.objects == {}


def test_a_service_that_gets_all_of_it_right_passes(server: S3Server) -> None:
    with lookalike_s3(Lookalike()) as lookalike:
        open_store("s3://bucket/x", endpoint=lookalike.endpoint).probe()
        assert lookalike.objects == {}


def test_nothing_remains_of_a_probe_on_s3(server: S3Server) -> None:
    bucket = server.new_bucket()
    open_store(f"s3://{bucket}", endpoint=server.endpoint).probe()
    assert server.client().list_objects_v2(Bucket=bucket)["KeyCount"] == 0


def test_a_missing_bucket_is_named_whatever_is_asked(server: S3Server) -> None:
    store = open_store("s3://not-there/x", endpoint=server.endpoint)
    for call in (
        lambda: store.find("a"),
        lambda: store.head("a"),
        lambda: store.put("a", b""),
        lambda: store.put_if_absent("a", b""),
        lambda: store.put_if_unchanged("a", b"", '"etag"'),
        lambda: list(store.list("")),
        lambda: store.delete("a"),
        lambda: store.delete_if_unchanged("a", '"etag"'),
        store.probe,
    ):
        with pytest.raises(StoreError, match="the bucket does not exist"):
            call()


def test_a_wrong_login_is_named_without_the_login(server: S3Server, s3_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong-and-secret")
    # Another spelling of the address: the client for the first one already has its credentials.
    store = open_store(s3_url, endpoint=server.endpoint.replace("127.0.0.1", "localhost"))
    for call in (lambda: store.find("a"), lambda: store.put_if_absent("a", b""), store.probe):
        with pytest.raises(StoreError, match="access denied") as refused:
            call()
        assert "wrong-and-secret" not in str(refused.value)
        assert server.access_key not in str(refused.value)


def test_missing_credentials_are_named(server: S3Server, s3_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(StoreError, match="no AWS credentials were found"):
        open_store(s3_url, endpoint=f"{server.endpoint}/").find("a")


def test_an_unreachable_service_is_named_and_nothing_is_unknown(server: S3Server, free_time: FreeTime) -> None:
    store = S3Store("bucket", "x", endpoint=f"http://127.0.0.1:{free_port()}", patience=free_time.patience(RIDE_OUT))
    for call in every_kind_of_call(store):
        free_time.now, free_time.pauses[:] = 0.0, []
        with pytest.raises(StoreError, match="does not answer") as refused:
            call()
        assert not isinstance(refused.value, OutcomeUnknown)
        # As long as promised, in pauses that grow.
        assert RIDE_OUT - 3 < free_time.now <= RIDE_OUT
        assert free_time.pauses[0] < 0.2 < 1 < max(free_time.pauses)


def every_kind_of_call(store: ObjectStore, etag: str = '"etag"') -> list[Callable[[], object]]:
    return [
        lambda: store.find("a"),
        lambda: store.head("a"),
        lambda: list(store.list("")),
        lambda: store.put("plain", b"1"),
        lambda: store.delete("plain"),
        lambda: store.put_if_absent("absent", b"1"),
        lambda: store.put_if_unchanged("a", b"2", etag),
        lambda: store.delete_if_unchanged("b", etag),
    ]


@pytest.mark.parametrize("trouble", ["swallow", 500, 503, 429])
def test_every_kind_of_call_rides_out_a_short_outage(
    far: S3Store, s3_store: ObjectStore, proxy: LossyProxy, free_time: FreeTime, trouble: str | int
) -> None:
    etag = s3_store.put("a", b"1")
    assert s3_store.put("b", b"1") == etag
    for call in every_kind_of_call(far, etag):
        free_time.now, free_time.pauses[:] = 0.0, []
        proxy.outage = trouble

        def over_after_some_pauses(seconds: float) -> None:
            free_time.now += seconds
            free_time.pauses.append(seconds)
            if len(free_time.pauses) == 4:
                proxy.outage = None

        far._patience = replace(far._patience, sleep=over_after_some_pauses)
        call()
        # A conditional write that finds nothing changed when it reads back waits once more.
        assert len(free_time.pauses) in (4, 5)
    assert [info.key for info in s3_store.list("")] == ["a", "absent"]
    assert s3_store.read("a") == b"2"


def test_every_kind_of_call_rides_out_a_service_that_restarts(
    proxy: LossyProxy, server: S3Server, s3_store: ObjectStore, s3_url: str
) -> None:
    """Connections are refused for three real seconds."""
    far = open_store(s3_url, endpoint=proxy.endpoint, region=server.region)
    far.conditional_deletes = True
    etag = s3_store.put("a", b"1")
    s3_store.put("b", b"1")
    proxy.close()
    back = threading.Timer(3, proxy.open)
    back.start()
    calls = every_kind_of_call(far, etag)
    with ThreadPoolExecutor(len(calls)) as pool:
        for answer in [pool.submit(call) for call in calls]:
            answer.result()
    back.join()
    s3_store.delete("plain")  # its delete may have come before its put
    assert [info.key for info in s3_store.list("")] == ["a", "absent"]


def test_a_long_listing_does_not_begin_again_when_a_page_fails(
    far: S3Store, s3_store: ObjectStore, proxy: LossyProxy, free_time: FreeTime
) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: s3_store.put(f"many/{n:04}", b""), range(1005)))
    proxy.fails = lambda path: "continuation-token" in path and not free_time.pauses
    assert len(list(far.list("many"))) == 1005
    assert proxy.seen == ["GET forward", "GET 503", "GET forward"]


@pytest.mark.parametrize("trouble", ["swallow", 409, 500, 503])
def test_a_delete_that_did_not_happen_is_tried_again(
    far: ObjectStore, s3_store: ObjectStore, proxy: LossyProxy, trouble: str | int
) -> None:
    etag = s3_store.put("mark", b"1")
    proxy.plan.append(trouble)
    assert far.delete_if_unchanged("mark", etag) is True
    assert s3_store.find("mark") is None


@pytest.mark.parametrize("trouble", ["lose", "twice"])
def test_a_delete_whose_answer_is_lost_claims_nothing(
    far: ObjectStore, s3_store: ObjectStore, proxy: LossyProxy, trouble: str
) -> None:
    etag = s3_store.put("mark", b"1")
    proxy.plan.append(trouble)
    assert far.delete_if_unchanged("mark", etag) is False
    assert s3_store.find("mark") is None


def test_a_delete_whose_answer_is_lost_spares_what_was_written_since(
    far: ObjectStore, s3_store: ObjectStore, proxy: LossyProxy
) -> None:
    etag = s3_store.put("mark", b"1")
    proxy.plan.append("swallow")
    proxy.before_forwarding = lambda: s3_store.put("mark", b"theirs")
    with pytest.raises(ObjectChanged, match="mark"):
        far.delete_if_unchanged("mark", etag)
    assert s3_store.read("mark") == b"theirs"


def test_an_object_that_changes_between_a_look_and_a_delete_is_spared(
    far: ObjectStore, s3_store: ObjectStore, proxy: LossyProxy
) -> None:
    etag = s3_store.put("mark", b"1")
    proxy.before_forwarding = lambda: s3_store.put("mark", b"theirs")
    with pytest.raises(ObjectChanged, match="mark"):
        far.delete_if_unchanged("mark", etag)
    assert s3_store.read("mark") == b"theirs"


def test_the_server_of_these_tests_obeys_conditional_deletes(s3_store: ObjectStore) -> None:
    assert s3_store.conditional_deletes is True
    assert pickle.loads(pickle.dumps(s3_store)).conditional_deletes is True


@pytest.mark.parametrize(
    ("how", "known_as"), [("obeyed", True), ("obeyed and silent", True), ("ignored", False), ("refused", False)]
)
def test_a_service_is_used_whatever_it_makes_of_conditions_on_deletes(server: S3Server, how: str, known_as: bool) -> None:
    with lookalike_s3(Lookalike(conditional_deletes=how)) as lookalike:
        store = open_store("s3://bucket/x", endpoint=lookalike.endpoint)
        assert store.conditional_deletes is False  # nothing is believed before the probe
        store.probe()
        assert lookalike.objects == {}
        assert store.conditional_deletes is known_as
        first = store.put("mark", b"1")
        second = store.put("mark", b"2")
        with pytest.raises(ObjectChanged):
            store.delete_if_unchanged("mark", first)
        assert store.read("mark") == b"2"
        assert store.delete_if_unchanged("mark", second) is True
        assert store.delete_if_unchanged("mark", second) is False
        assert lookalike.objects == {}


def test_a_pickled_store_holds_no_credentials(s3_store: ObjectStore, server: S3Server) -> None:
    s3_store.put("a", b"1")
    pickled = pickle.dumps(s3_store)
    assert server.secret_key.encode() not in pickled
    assert server.access_key.encode() not in pickled


def test_folders_made_by_a_console_and_probes_are_not_listed(s3_store: ObjectStore, server: S3Server, s3_url: str) -> None:
    bucket, _, prefix = s3_url.removeprefix("s3://").partition("/")
    for foreign in ("folder/", ".tidemark-probe-1"):
        server.client().put_object(Bucket=bucket, Key=f"{prefix}/{foreign}", Body=b"")
    s3_store.put("folder/a", b"1")
    assert [info.key for info in s3_store.list("")] == ["folder/a"]
