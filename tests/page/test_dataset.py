"""Data sets: the three ready mappings on tiny local files, other layouts, and what is refused."""

from __future__ import annotations

import io
import json
import logging
from pathlib import Path

import pytest
import yaml
from datasets import ClassLabel, Dataset, DatasetDict, Features, Image, List, Value
from PIL import Image as Pillow

from headscope import resources
from headscope.page.source import dataset

CONF = resources.PACKAGE.parent / "conf" / "pages"
BOXED = {"image": "image", "word": "words.text", "box": "words.box"}


def png(width: int = 60, height: int = 40, orientation: int = 1) -> bytes:
    file, exif = io.BytesIO(), Pillow.Exif()
    exif[0x0112] = orientation
    Pillow.new("RGB", (width, height), "white").save(file, "PNG", exif=exif)
    return file.getvalue()


def mapping(name: str, **changes: object) -> dict:
    settings = yaml.safe_load((CONF / f"{name}.yaml").read_text()) | changes
    settings.pop("_target_")
    return settings


def parquet(path: Path, rows: list[dict], **features: object) -> Path:
    images = [{"image": {"bytes": png(), "path": f"{number}.png"}} for number in range(len(rows))]
    rows = [image | row for image, row in zip(images, rows, strict=True)]
    Dataset.from_list(rows, Features({"image": Image()} | features)).to_parquet(path / "data.parquet")
    return path / "data.parquet"


def boxed(path: Path, *boxes: list[float], text: str = "Total") -> Path:
    words = List({"text": Value("string"), "box": List(Value("float64"))})
    return parquet(path, [{"words": [{"text": text, "box": box}]} for box in boxes], words=words)


def read(page) -> list[tuple]:
    return [(word.text, word.box) for word in page.words]


def test_synthdog_chunks_and_corners_become_words(tmp_path):
    chunks = List({"chunk": Value("string"), "coord": List(List(Value("int64")))})
    row = {
        "2_coord": [{"chunk": "the fox", "coord": [[3, 4], [50, 14]]}, {"chunk": "ran", "coord": [[3, 20], [22, 30]]}]
    }
    page = dataset(**mapping("synthdog", path=parquet(tmp_path, [row], **{"2_coord": chunks})))[0]
    assert read(page) == [("the fox", (3.0, 4.0, 50.0, 14.0)), ("ran", (3.0, 20.0, 22.0, 30.0))]


@pytest.mark.parametrize("shape", ["list of objects", "object of lists"])
def test_coco_boxes_and_class_ids_become_named_words(tmp_path, shape):
    bbox, category = List(Value("float32")), ClassLabel(names=["cat", "dog"])
    if shape == "list of objects":
        objects = [{"bbox": [1, 2, 30, 20], "category": 1}, {"bbox": [5, 5, 4, 4], "category": 0}]
        feature = List({"bbox": bbox, "category": category})
    else:
        objects = {"bbox": [[1, 2, 30, 20], [5, 5, 4, 4]], "category": [1, 0]}
        feature = {"bbox": List(bbox), "category": List(category)}
    page = dataset(**mapping("coco", path=parquet(tmp_path, [{"objects": objects}], objects=feature)))[0]
    assert read(page) == [("dog", (1.0, 2.0, 31.0, 22.0)), ("cat", (5.0, 5.0, 9.0, 9.0))]


@pytest.mark.parametrize("flat", [True, False])
def test_quads_are_read_flat_or_as_points_and_illegible_ones_dropped(tmp_path, flat):
    corners = [[9, 36], [20, 3], [24, 5], [13, 38]]
    quad = [number for point in corners for number in point] if flat else corners
    numbers = List(Value("int64")) if flat else List(List(Value("int64")))
    feature = List({"transcription": Value("string"), "quad": numbers})
    row = {"words": [{"transcription": text, "quad": quad} for text in ("EXIT", "###", "", None)]}
    page = dataset(**mapping("quads", path=parquet(tmp_path, [row], words=feature)))[0]
    assert read(page) == [("EXIT", (9.0, 3.0, 24.0, 38.0))]
    assert page.words[0].quad == tuple(map(tuple, corners))


def test_pictures_stay_the_bytes_they_are(tmp_path):
    page = dataset(boxed(tmp_path, [1, 2, 3, 4]), {"image": "image"})[0]
    assert page.source == png() and page.words is None and page.name == "0.png"


def test_a_picture_that_is_no_picture_stays_to_fail_by_name_later(tmp_path):
    rows = [{"image": {"bytes": b"half a pic", "path": "bad.png"}}, {"image": None}]
    Dataset.from_list(rows, Features({"image": Image()})).to_parquet(tmp_path / "p.parquet")
    pages = dataset(tmp_path, {"image": "image"})
    assert [(page.name, page.source) for page in pages] == [("bad.png", b"half a pic"), ("row 1", b"")]


def test_only_the_rows_asked_for_are_read(tmp_path):
    good, bad = [1, 2, 3, 4], [1, 2]
    file = boxed(tmp_path, good, good, bad)
    assert [page.name for page in dataset(file, BOXED, limit=2)] == ["0.png", "1.png"]
    with pytest.raises(ValueError, match="data.parquet`, row 2: `box` of 'Total' must be 4 finite numbers"):
        dataset(file, BOXED)


@pytest.mark.parametrize(("unit", "box"), [("one", [0.25, 0.5, 1, 1]), ("thousand", [250, 500, 1000, 1000])])
def test_normalised_boxes_become_pixels_of_the_upright_page(tmp_path, unit, box):
    rows = [{"image": {"bytes": png(60, 40, turn)}, "words": [{"text": "a", "box": box}]} for turn in (1, 6)]
    rows.append({"image": {"bytes": b"bad"}, "words": [{"text": "a", "box": box}]})
    words = List({"text": Value("string"), "box": List(Value("float64"))})
    Dataset.from_list(rows, Features({"image": Image(), "words": words})).to_parquet(tmp_path / "p.parquet")
    upright, turned, bad = dataset(tmp_path, BOXED, unit=unit)
    assert read(upright) == [("a", (15.0, 20.0, 60.0, 40.0))]
    assert read(turned) == [("a", (10.0, 30.0, 40.0, 60.0))]
    assert bad.words is None


def test_a_folder_a_glob_a_file_and_a_saved_data_set_read_alike(tmp_path):
    file = boxed(tmp_path, [1, 2, 3, 4])
    rows = Dataset.from_parquet(str(file), cache_dir=str(tmp_path / "cache"))
    rows.save_to_disk(tmp_path / "one")
    DatasetDict(train=rows).save_to_disk(tmp_path / "several")
    arrow = str(next((tmp_path / "one").glob("*.arrow")))
    (tmp_path / "folder").mkdir()
    file.rename(file := tmp_path / "folder" / "data.parquet")
    paths = [file, file.parent, tmp_path / "folder" / "*.parquet", tmp_path / "one", tmp_path / "several", arrow]
    assert {tuple(dataset(path, BOXED)) for path in paths} == {tuple(dataset(file, BOXED))}


def test_json_rows_find_their_pictures_beside_them(tmp_path):
    (tmp_path / "a.png").write_bytes(png())
    row = {"image": "a.png", "caption": "Total 42", "id": 7}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n" + json.dumps(row) + "\n")
    first, second = dataset(tmp_path / "rows.jsonl", {"image": "image", "text": "caption", "name": "id"})
    assert (first.name, second.name) == ("7", "7 (2)")
    assert first.source == tmp_path / "a.png" and first.text == "Total 42"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"columns": {}}, "`columns` must say which column holds the `image`"),
        ({"columns": {"image": "image", "words": "w"}}, "`columns` must map .*; got 'words'; did you mean `word`"),
        ({"columns": {"image": "image", "word": "w"}}, "`columns` must map both `word` and `box`"),
        ({"columns": {"image": "imgae"}}, "row 0: no column `imgae`; did you mean `image`"),
        ({"columns": BOXED | {"box": "words.bbox"}}, "row 0: no column `bbox`; did you mean `box`"),
        ({"layout": "coco"}, "`layout` must be one of xyxy, xywh, quad; got 'coco'"),
        ({"layout": "quad"}, "row 0: `quad` of 'Total' must be 8 finite numbers"),
        ({"unit": "pixels"}, "`unit` must be one of .*; got 'pixels'; did you mean `pixel`"),
        ({"ignore": "###"}, "`ignore` must be a list of words"),
        ({"limit": 0}, "`limit` must be a whole number"),
        ({"split": "tset"}, "cannot open data set .*`tset`"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(tmp_path, changes, said):
    boxed(tmp_path, [1, 2, 3, 4])
    with pytest.raises(ValueError, match=said) as caught:
        dataset(**{"path": tmp_path, "columns": BOXED} | changes)
    assert "\n" not in str(caught.value)


def test_texts_and_boxes_must_pair_up(tmp_path):
    row = {"texts": ["a", "b"], "boxes": [[1, 2, 3, 4]]}
    file = parquet(tmp_path, [row], texts=List(Value("string")), boxes=List(List(Value("int64"))))
    with pytest.raises(ValueError, match="row 0: `texts` and `boxes` must pair up; got 2 and 1"):
        dataset(file, {"image": "image", "word": "texts", "box": "boxes"})


def test_a_local_path_that_is_missing_never_reaches_the_hub(tmp_path):
    for path in (tmp_path / "none", "./none", "none/*.parquet", "none/a.parquet", "a/b/c"):
        with pytest.raises(FileNotFoundError, match="no pages in .*no such file or folder"):
            dataset(path, BOXED)


def test_files_of_another_kind_are_refused(tmp_path):
    (tmp_path / "a.docx").touch()
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 but not really")
    with pytest.raises(ValueError, match="must be parquet, arrow or JSON; got `a.docx`"):
        dataset(tmp_path / "a.docx", BOXED)
    with pytest.raises(ValueError, match=r"broken.parquet`"):
        dataset(tmp_path / "broken.parquet", BOXED)


def test_a_hub_that_cannot_be_reached_is_one_line(monkeypatch, capfd):
    def offline(*args, **kwargs):
        logging.getLogger("huggingface_hub.utils._http").warning("Retrying in 1s [Retry 1/5].")
        raise ConnectionError("Couldn't reach it\non the Hub")

    monkeypatch.setattr("datasets.load_dataset", offline)
    with pytest.raises(
        ValueError, match=r"cannot open data set `owner/name`, split `train`: Couldn't reach it on the Hub$"
    ):
        dataset("owner/name", {"image": "image"})
    assert "Retry" not in capfd.readouterr().err
