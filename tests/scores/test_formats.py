"""Head files of other tools: read by parsed (layer, head), refused when anything is missing, doubled or no score."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from headscope.scores import HeadScores, as_scores, export, read_any
from headscope.scores.formats import EXPORTS
from headscope.scores.formats.lukv import keep_shares

SCORES = arrays.arrays(np.float32, (3, 4), elements=st.floats(0, 1000, width=32))
EACH = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def keyed(layers, heads, value=0.5):
    return {f"{layer}-{head}": [value] for layer in range(layers) for head in range(heads)}


def written(tmp_path, content, name="heads.json"):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else (content + "\n").encode())
    return path


def refused(path, match, **geometry):
    with pytest.raises(ValueError, match=f"`{re.escape(str(path))}`: {match}"):
        read_any(path, **geometry)


def test_heads_are_placed_by_their_numbers_and_samples_averaged(tmp_path):
    path = written(tmp_path, '{"1-1": [3], "0-1": [0.21, 0], "1-0": 4, "0-0": [0.0, 0.0006]}')
    scores = read_any(path, layers=2, heads=2, kv_heads=1)
    np.testing.assert_allclose(scores.values, [[0.0003, 0.105], [4, 3]], rtol=1e-6)
    assert scores.geometry == (2, 2, 1)
    assert scores.probe == {"imported": {"format": "sparsemm", "heads": "query"}}


@EACH
@given(values=SCORES)
def test_keyed_json_carries_scores_exactly_on_one_line(tmp_path, values):
    for name in ("sparsemm", "retrieval_head", "headkv", "qrhead"):
        path = tmp_path / f"{name}.json"
        export(HeadScores.from_values(values, kv_heads=2), path, name)
        read = read_any(path, 3, 4, 2)
        np.testing.assert_array_equal(read.values.numpy(), values)
        assert read.kv_heads == 2
        assert path.read_text().count("\n") == 1


def test_a_sparsemm_file_looks_like_this(tmp_path):
    export(HeadScores.from_values([[0.5, 0], [0, 2]]), tmp_path / "heads.json", "sparsemm")
    assert (tmp_path / "heads.json").read_text() == '{"0-0": [0.5], "0-1": [0.0], "1-0": [0.0], "1-1": [2.0]}\n'


def test_a_qrhead_file_ranks_the_heads(tmp_path):
    export(HeadScores.from_values([[0.5, 0], [0, 2]]), tmp_path / "heads.json", "qrhead")
    assert json.loads((tmp_path / "heads.json").read_text())[:2] == [["1-1", 2.0], ["0-0", 0.5]]


def test_the_file_of_another_model_is_refused_with_both_shapes(tmp_path):
    path = written(tmp_path, json.dumps(keyed(32, 32)))
    refused(path, r"expected 28 layers x 28 heads, found 32 x 32 \(1024 heads\)", layers=28, heads=28, kv_heads=4)


def test_a_missing_head_is_an_error_not_a_zero(tmp_path):
    whole = keyed(28, 28)
    without = written(tmp_path, json.dumps({key: whole[key] for key in whole if key != "27-27"}))
    refused(without, "expected 28 layers x 28 heads = 784, found 783; missing: 27-27$", layers=28, heads=28)
    refused(without, "expected 28 layers x 28 heads = 784, found 783; missing: 27-27$")
    half = written(tmp_path, json.dumps(keyed(14, 28)))
    refused(
        half, "expected 28 layers .* found 392; missing: 14-0, 14-1, 14-2, 14-3, 14-4 and more", layers=28, heads=28
    )


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ("", r"expected a head-score file, found an empty one"),
        ("{}", r"expected a score for every \(layer, head\), found none"),
        ("[]", "expected a list such as .*, found one that starts with None"),
        ('{"0-0": [0.5], "0-1": [', "expected a whole JSON document"),
        ('{"0-0": [0.5], "0-0": [0.6]}', 'expected every key once, found "0-0" twice'),
        ('{"0-0": [0.5], "00-0": [0.6]}', "expected every head once, found 0-0 twice"),
        ('{"0-0": []}', "expected at least one score for head 0-0, found an empty list"),
        ('{"0-0": [0.5, -0.1]}', "expected finite scores of at least 0 for head 0-0, found -0.1"),
        ('{"0-0": [NaN]}', "expected finite numbers, found NaN"),
        ('{"0-0": [1e400]}', "expected finite scores of at least 0 for head 0-0, found inf"),
        ('{"0-0": [1' + "0" * 400 + "]}", "expected finite scores of at least 0 for head 0-0, found inf"),
        ('{"0-0": -1}', "scores must be finite .* found -1.0 at layer 0, head 0"),
        ('{"0-0": [true]}', "expected a number for head 0-0, found True"),
        ('{"0-0": "0.5"}', "expected a number for head 0-0, found '0.5'"),
        ('{"0-0": null}', "expected a number for head 0-0, found None"),
        ('{"layer 0": [0.5]}', 'expected keys "layer-head" such as "0-0", found "layer 0"'),
        ('{"0--1": [0.5]}', 'expected keys "layer-head" .* found "0--1"'),
        ('{"0-0": [0.5], "0-1-key": [0.5]}', "expected keys of one form"),
        ('{"format": "headscope.scores/9"}', 'expected "format"'),
        ('{"99999999-99999999": [1]}', "expected 100000000 layers .* found 1; missing: 0-0, "),
        ('[["0-0", 0.5], ["0-0", 0.6]]', "expected every head once, found 0-0 twice"),
        ('[["0-0", 0.5], ["0-1"]]', r"expected pairs such as \[\"13-2\", 0.41\], found \['0-1'\]"),
        ('[["0-0", 0.5], ["0-2", 0.5]]', "expected 1 layers x 3 heads = 3, found 2; missing: 0-1"),
        ("[[0.5, 0.5], [0.5]]", "expected 2 heads in layer 1, as in layer 0, found 1"),
        ("[[0.5], 3]", "expected 1 heads in layer 1, as in layer 0, found 3"),
        ("[0.5, 0.6]", "expected one score a head .* found one score a layer"),
        ("not head scores", "expected head scores as JSON, a table .* found other content"),
        (b"\x89PNG\r\n\x1a\n\x00", "expected head scores as JSON, a table .* found other content"),
        ("0.5\tnan", "scores must be finite .* found nan at layer 0, head 1"),
        ("0.5\t-0.5", "scores must be finite .* found -0.5 at layer 0, head 1"),
        ("0.5\t1.5", "expected shares from 0 to 1, found 1.5 at layer 0, KV head 1"),
        ("0.5\t0.5\n0.5", "expected 2 heads in layer 1, as in layer 0, found 1"),
        (b"\x93NUMPY\x01\x00", r"expected a whole npy array \[99, layers, KV heads\], found a broken one"),
    ],
)
def test_what_is_no_head_file_is_refused_with_its_name(tmp_path, content, match):
    refused(written(tmp_path, content), match)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"`.*nowhere.json`: expected a head-score file, found no file"):
        read_any(tmp_path / "nowhere.json")
    with pytest.raises(
        FileNotFoundError, match=r"full_attention_heads.tsv`: expected a head-score file, found no file"
    ):
        read_any(tmp_path)


def test_a_score_file_of_headscope_is_read_and_checked_too(tmp_path):
    HeadScores.from_values(np.ones((2, 4)), kv_heads=2).save(tmp_path / "scores.json")
    assert read_any(tmp_path / "scores.json", 2, 4, 2).geometry == (2, 4, 2)
    refused(tmp_path / "scores.json", "expected 3 layers x 4 heads", layers=3)
    assert as_scores(str(tmp_path / "scores.json")).geometry == (2, 4, 2)


def test_scores_are_taken_as_scores_or_as_a_path(tmp_path):
    scores = HeadScores.from_values([[1, 2]])
    assert as_scores(scores) is scores
    with pytest.raises(ValueError, match="`scores` must be HeadScores or the path of a head file, got list"):
        as_scores([[1, 2]])


def test_a_duoattention_folder_looks_like_this(tmp_path):
    export(HeadScores.from_values([[1, 1, 0, 0], [0, 1, 0, 4]], kv_heads=2), tmp_path / "duo", "duoattention")
    assert (tmp_path / "duo" / "full_attention_heads.tsv").read_text() == "0.5\t0.0\n0.25\t1.0\n"
    assert json.loads((tmp_path / "duo" / "config.json").read_text()) == {"sink_size": 128, "recent_size": 256}
    table = np.loadtxt(tmp_path / "duo" / "full_attention_heads.tsv", delimiter="\t")
    assert table.tolist() == [[0.5, 0], [0.25, 1]]


@EACH
@given(values=SCORES)
def test_a_duoattention_folder_keeps_the_kv_scores_up_to_their_scale(tmp_path, values):
    values = values + np.float32(1)
    scores = HeadScores.from_values(values, kv_heads=2)
    export(scores, tmp_path / "duo", "duoattention")
    read = read_any(tmp_path / "duo", layers=3, kv_heads=2)
    np.testing.assert_allclose(read.values, scores.kv() / scores.kv().max(), rtol=1e-6)
    assert read.geometry == (3, 2, 2)
    export(read, tmp_path / "again", "duoattention")
    assert (tmp_path / "again" / "full_attention_heads.tsv").read_bytes() == (
        tmp_path / "duo" / "full_attention_heads.tsv"
    ).read_bytes()
    np.testing.assert_array_equal(read_any(tmp_path / "again").values, read.values)


def test_duoattention_tells_its_streaming_sizes_and_its_shape(tmp_path):
    written(tmp_path, "1.000e+00\t0.000e+00\n2.500e-01\t5.000e-01", "full_attention_heads.tsv")
    assert "sink_size" not in read_any(tmp_path).probe["imported"]
    written(tmp_path, '{"sink_size": 64, "recent_size": 128}', "config.json")
    imported = read_any(tmp_path / "full_attention_heads.tsv", 2, 8, 2)
    assert imported.values.tolist() == [[1, 0], [0.25, 0.5]]
    assert imported.probe["imported"] == {"format": "duoattention", "heads": "kv", "sink_size": 64, "recent_size": 128}
    refused(tmp_path, "expected 2 layers x 4 KV heads, found 2 x 2", kv_heads=4)
    written(tmp_path, "[64]", "config.json")
    refused(tmp_path, r"expected config.json to be an object, found \[64\]")


def test_a_lukv_row_prunes_what_it_says(tmp_path):
    values = np.random.default_rng(0).random((3, 4)) ** 4
    export(HeadScores.from_values(values, kv_heads=2), tmp_path / "heads.npy", "lukv")
    pruned = np.load(tmp_path / "heads.npy")
    assert pruned.shape == (99, 3, 2)
    np.testing.assert_allclose(pruned.mean(axis=(1, 2)), np.arange(1, 100) / 100, atol=1e-12)
    assert pruned.min() >= 0
    assert (np.diff(pruned, axis=0) > -1e-12).all()


@EACH
@given(st.lists(st.integers(0, 50), min_size=2, max_size=12).filter(any), st.integers(1, 99))
def test_lukv_shares_follow_the_weights_and_spend_the_mean(weights, percent):
    weights = np.array(weights, float)
    shares = keep_shares(weights, percent / 100)
    assert shares.mean() == pytest.approx(percent / 100)
    assert ((shares >= 0) & (shares <= 1)).all()
    order = np.argsort(weights)
    assert (np.diff(shares[order]) >= -1e-12).all()


def test_lukv_keeps_the_order_of_heads(tmp_path):
    values = np.random.default_rng(0).random((3, 4))
    scores = HeadScores.from_values(values, kv_heads=2)
    export(scores, tmp_path / "heads.npy", "lukv")
    read = read_any(tmp_path / "heads.npy", 3, 4, 2)
    assert read.geometry == (3, 2, 2)
    assert read.values.flatten().argsort().tolist() == scores.kv().flatten().argsort().tolist()


def test_a_lukv_score_is_the_mean_share_kept(tmp_path):
    curve = np.stack([np.full(99, 0.25), np.linspace(0, 1, 99)], axis=1).reshape(99, 1, 2)
    np.save(tmp_path / "heads.npy", curve)
    np.testing.assert_allclose(read_any(tmp_path / "heads.npy").values, [[0.75, 0.5]])


@pytest.mark.parametrize(
    ("curve", "match"),
    [
        (np.ones((98, 2, 2)), r"expected numbers \[99, layers, KV heads\], found float64 \[98, 2, 2\]"),
        (np.ones((99, 2)), r"expected numbers \[99, layers, KV heads\], found float64 \[99, 2\]"),
        (np.full((99, 2, 2), "x"), r"expected numbers \[99, layers, KV heads\], found <U1"),
        (np.full((99, 2, 2), np.nan), "expected pruned shares from 0 to 1, found nan at row 0, layer 0, KV head 0"),
        (np.full((99, 2, 2), -0.1), "expected pruned shares from 0 to 1, found -0.1 at row 0"),
        (np.full((99, 2, 2), 1.1), "expected pruned shares from 0 to 1, found 1.1 at row 0"),
        (np.full((99, 2, 3), 0.5), "expected 2 layers x 2 KV heads, found 2 x 3"),
    ],
)
def test_a_wrong_lukv_array_is_refused(tmp_path, curve, match):
    np.save(tmp_path / "heads.npy", curve)
    refused(tmp_path / "heads.npy", match, layers=2, kv_heads=2)


def test_a_pickle_is_never_run(tmp_path):
    np.save(tmp_path / "heads.npy", np.array([{}], object), allow_pickle=True)
    refused(tmp_path / "heads.npy", "expected a whole npy array .* found a broken one")


def test_mixkv_rows_and_keys_are_kv_heads(tmp_path):
    rows = read_any(written(tmp_path, "[[0.1, 0.2], [0.3, 0.4]]"), 2, 8, 2)
    keys = read_any(written(tmp_path, '{"0-1-key": [0.2], "0-0-key": [0.1], "1-0-key": 0.3, "1-1-key": 0.4}'), 2, 8, 2)
    assert rows.values.tolist() == keys.values.tolist()
    assert rows.geometry == keys.geometry == (2, 2, 2)
    export(HeadScores.from_values([[1, 2, 3, 4]], kv_heads=2), tmp_path / "rows.json", "mixkv")
    assert (tmp_path / "rows.json").read_text() == "[[3.0, 7.0]]\n"


def test_prefixkv_gives_a_layers_number_to_all_its_heads(tmp_path):
    assert read_any(written(tmp_path, "[0.25, 0.5]"), kv_heads=2).values.tolist() == [[0.25, 0.25], [0.5, 0.5]]


@pytest.mark.parametrize("name", ["duoattention", "lukv"])
def test_shares_cannot_be_made_of_zeros(tmp_path, name):
    with pytest.raises(ValueError, match=r"`scores` must have a head above 0 .* got all zeros"):
        export(HeadScores.from_values([[0, 0]]), tmp_path / "heads", name)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", sorted(EXPORTS))
def test_every_export_is_read_back(tmp_path, name):
    scores = HeadScores.from_values([[1, 2, 3, 4], [8, 7, 6, 5]], kv_heads=4)
    export(scores, tmp_path / "heads", name)
    read = read_any(tmp_path / "heads", 2, 4, 4)
    assert [(layer, head) for layer, head, _ in read.top(8)] == [(layer, head) for layer, head, _ in scores.top(8)]


def test_an_unknown_format_is_refused_with_the_near_one(tmp_path):
    with pytest.raises(
        ValueError, match=r"`format` must be one of sparsemm, .*, got 'duo-attention'; did you mean duoattention"
    ):
        export(HeadScores.from_values([[1]]), tmp_path / "x", "duo-attention")
