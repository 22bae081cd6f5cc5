"""Merging: any split of the pages gives the file of one run; parts that do not belong together are refused by name."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headscope.scores import FailedPage, HeadScores, NothingScoredError, merge
from headscope.scores.merge import shard_of

FAILED = [FailedPage("z.png", "cut off"), FailedPage("a.png", "no picture")]


def parts_of(records, places, count, scores, folder):
    """Save shard i with the pages whose place is i, and give the paths."""
    paths = []
    for shard in range(1, count + 1):
        mine = [record for record, place in zip(records, places, strict=True) if place == shard]
        failed = FAILED[:1] if shard == count else FAILED[1:] if shard == 1 else []
        part = scores(mine, failed, shard=f"{shard}/{count}", keep_pages=False)
        part.save(folder / f"part-{shard}.json")
        paths.append(folder / f"part-{shard}.json")
    return paths


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_merging_any_partition_gives_the_file_of_one_run_bit_for_bit(record, scores, tmp_path, data):
    count = data.draw(st.integers(2, 4))
    places = data.draw(st.lists(st.integers(1, count), min_size=1, max_size=9))
    records = [record(place) for place in range(len(places))]
    paths = data.draw(st.permutations(parts_of(records, places, count, scores, tmp_path)))
    for keep in (True, False):
        scores(records, FAILED, keep_pages=keep).save(tmp_path / "whole.json")
        merge(paths, keep_pages=keep).save(tmp_path / "merged.json")
        assert (tmp_path / "merged.json").read_bytes() == (tmp_path / "whole.json").read_bytes()


def test_complete_files_of_different_pages_merge_too(record, scores, tmp_path):
    scores([record(0), record(1)]).save(tmp_path / "a.json")
    scores([record(2)]).save(tmp_path / "b.json")
    merged = merge([tmp_path / "a.json", tmp_path / "b.json"])
    merged.save(tmp_path / "merged.json")
    scores([record(place) for place in range(3)]).save(tmp_path / "whole.json")
    assert (tmp_path / "merged.json").read_bytes() == (tmp_path / "whole.json").read_bytes()
    assert merge([merged, scores([record(3)])]).probe["pages"] == 4


def test_software_that_differs_between_hosts_is_listed(record, scores):
    one = scores([record(0)], shard="1/2")
    two = scores([record(1)], shard="2/2", software={"torch": "2.13.0", "driver": "9"})
    assert merge([one, two]).software == {"headscope": "0.1.0", "torch": "2.13.0, 2.14.1", "driver": "9, None"}


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"model": {"id": "tiny/two"}}, r"`model.id` to be 'tiny/one', as in part 1, found 'tiny/two'"),
        ({"model": {"config_hash": "beef"}}, r"`model.config_hash` to be 'c0ffee', as in part 1, found 'beef'"),
        ({"model": {"kv_heads": 4}}, r"`model.kv_heads` to be 2, as in part 1, found 4"),
        ({"statistic": "mass"}, r"`probe.statistic` to be 'hit', as in part 1, found 'mass'"),
        ({"ocr": {"engine": "words", "version": "2"}}, r"`probe.ocr.version` to be '1', as in part 1, found '2'"),
        ({"prompt": "Read."}, r"`probe.prompt` to be None, as in part 1, found 'Read.'"),
    ],
)
def test_parts_of_another_model_or_setting_are_refused(record, scores, changes, match):
    with pytest.raises(ValueError, match=f"part 2: expected {match}"):
        merge([scores([record(0)], shard="1/2"), scores([record(1)], shard="2/2", **changes)])


def test_a_list_setting_is_the_same_after_a_file(record, scores, tmp_path):
    scores([record(0)], shard="1/2", cells=("fine",)).save(tmp_path / "a.json")
    assert merge([tmp_path / "a.json", scores([record(1)], shard="2/2", cells=("fine",))]).probe["pages"] == 2


def test_missing_shards_are_named(record, scores):
    with pytest.raises(ValueError, match="needs all 4 shards, found 2; missing: 2/4, 4/4"):
        merge([scores([record(place)], shard=f"{place}/4") for place in (1, 3)])


def test_a_shard_given_twice_is_named(record, scores, tmp_path):
    scores([record(0)], shard="1/2").save(tmp_path / "a.json")
    with pytest.raises(ValueError, match=r"`.*a.json`: expected every shard once, found 1/2 again, after `.*a.json`"):
        merge([tmp_path / "a.json", tmp_path / "a.json"])


def test_shards_of_other_splits_do_not_mix(record, scores):
    with pytest.raises(ValueError, match="part 2: expected one of 2 shards, found shard 2/3"):
        merge([scores([record(0)], shard="1/2"), scores([record(1)], shard="2/3")])
    for order in itertools.permutations([scores([record(0)], shard="1/2"), scores([record(1)])]):
        with pytest.raises(ValueError, match="expected one of 2 shards, found a complete probe"):
            merge(order)


def test_a_page_in_two_parts_is_named(record, scores, tmp_path):
    for shard in (1, 2):
        scores([record(5), record(shard)], shard=f"{shard}/2").save(tmp_path / f"{shard}.json")
    with pytest.raises(
        ValueError, match=r"2.json`: expected every page in one part, found 'page-5.png' .* in `.*1.json`"
    ):
        merge([tmp_path / "1.json", tmp_path / "2.json"])


def test_the_same_picture_under_two_names_is_two_pages(record, scores):
    merged = merge([scores([record(5)], shard="1/2"), scores([record(5, name="copy.png")], shard="2/2")])
    assert merged.probe["pages"] == 2


def test_files_without_pages_cannot_be_merged(record, scores, tmp_path):
    scores([record(0)], keep_pages=False).save(tmp_path / "a.json")
    with pytest.raises(ValueError, match=r"`.*a.json`: expected per-page values \(`pages`\), found none"):
        merge([tmp_path / "a.json"])
    with pytest.raises(ValueError, match="`merge` needs at least one score file, got none"):
        merge([])
    with pytest.raises(FileNotFoundError, match=r"nowhere.json"):
        merge([tmp_path / "nowhere.json"])


@pytest.mark.parametrize("shard", ["0/2", "3/2", "1", "a/b", 1])
def test_a_shard_is_one_of_n(shard):
    with pytest.raises(ValueError, match='expected `shard` to be "i/n" with 1 <= i <= n, found'):
        shard_of({"shard": shard})


def test_a_part_without_credited_tokens_or_pages_counts_as_empty(record, scores):
    empty = scores([], FAILED, shard="2/2")
    assert merge([scores([record(0)], shard="1/2"), empty]).failed == tuple(sorted(FAILED))
    assert isinstance(empty, HeadScores)


def test_parts_that_credited_nothing_all_together_are_refused(record, scores):
    nothing = [dataclasses.replace(record(place), credited=0) for place in range(2)]
    parts = [scores([one], shard=f"{place}/2") for place, one in enumerate(nothing, start=1)]
    with pytest.raises(NothingScoredError, match="none of the 24 answer tokens on 2 pages matched a word"):
        merge(parts)
    assert merge([parts[0], scores([record(1)], shard="2/2")]).probe["credited"] == 8


def test_parts_without_pages_or_words_are_refused(record, scores):
    with pytest.raises(NothingScoredError, match="`pages` must hold at least one page, got none"):
        merge([scores([], shard="1/1")])
    with pytest.raises(NothingScoredError, match="none of the 2 pages could be read; the first: z.png: cut off"):
        merge([scores([], FAILED[:1], shard="1/2"), scores([], FAILED[1:], shard="2/2")])
    with pytest.raises(NothingScoredError, match="no words found on any of the 1 pages"):
        merge([scores([dataclasses.replace(record(0), words=0, credited=0)], shard="1/1")])
