"""A command line is rewritten and checked before Hydra sees it."""

from __future__ import annotations

from pathlib import Path

import pytest

from headscope.cli import line


def read(*words: str) -> tuple[str, ...]:
    return line.read("probe", words).overrides


def test_names_of_choices_stay() -> None:
    assert read("model=reader", "pages=bundled", "ocr=words") == ("model=reader", "pages=bundled", "ocr=words")


def test_a_hub_id_is_a_pretrained_model() -> None:
    chosen = ("model=pretrained", "model.path='Qwen/Qwen2-VL-7B-Instruct'")
    assert read("model=Qwen/Qwen2-VL-7B-Instruct") == chosen


@pytest.mark.parametrize("typed", ["model={}", "model='\"{}\"'", 'model="{}"'])
def test_a_folder_is_a_pretrained_model_whatever_its_name(stand: Path, typed: str) -> None:
    folder = stand / "epoch=3 (é)"
    folder.mkdir()
    chosen = read(typed.format(folder).replace("'", ""))
    assert chosen == ("model=pretrained", f"model.path='{folder}'")


def test_relative_folders_count_from_where_the_person_stands(stand: Path) -> None:
    (stand / "checkpoint").mkdir()
    assert read("model=checkpoint") == ("model=pretrained", "model.path='checkpoint'")


def test_pages_may_be_a_folder_an_image_a_glob_or_a_jsonl(stand: Path) -> None:
    (stand / "scans").mkdir()
    (stand / "scans" / "a,b.png").touch()
    (stand / "mine.jsonl").touch()
    model = "model=reader"
    assert read(model, "pages=scans")[1:] == ("pages=folder", "pages.path='scans'")
    assert read(model, "pages=scans/a,b.png")[1:] == ("pages=folder", "pages.path='scans/a,b.png'")
    assert read(model, "pages=scans/*.png")[1:] == ("pages=folder", "pages.path='scans/*.png'")
    assert read(model, "pages=mine.jsonl")[1:] == ("pages=jsonl", "pages.path='mine.jsonl'")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["model=raeder"], "`model` has no choice 'raeder'; near: reader; give one of .*a hub id such as"),
        (["model="], "`model` has no choice ''"),
        (["model=null"], "`model` has no choice 'null'"),
        (["pages.limit=3"], "`model` is required: give model=..., one of .*reader.*, or a hub id"),
        (["model=reader", "ocr=easyorc"], "`ocr` has no choice 'easyorc'; near: easyocr; give one of easyocr"),
        (["model=reader", "pages=bundeld"], "`pages` has no choice 'bundeld'; near: bundled"),
        (["model=reader", "budgt=64"], "`budgt` is not a key of this verb"),
        (["model=reader", "pages.limt=64"], "`pages.limt` is not a key of this verb; near: pages.limit"),
        (["model=reader", "limit=64"], "`limit` is not a key of this verb; near: pages.limit"),
        (["model=reader", "pages.path=x"], "`pages.path` is not a key of this verb"),
        (["model=reader", "--multrun"], "`--multrun` is not a flag; near: --multirun"),
        (["reader"], "`reader` is not of the form key=value"),
        (["-m", "model=reader,raeder"], "`model` can be swept over .*, got 'raeder'; near: reader"),
    ],
)
def test_what_is_unknown_is_refused_with_the_near_ones(words: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        line.read("probe", words)


@pytest.mark.parametrize("word", ["model=./nowhere", "model=/no/such/folder", "pages=no/such.jsonl", "pages=*.png"])
def test_a_path_to_nothing_says_so(stand: Path, word: str) -> None:
    with pytest.raises(FileNotFoundError, match="nothing found at"):
        line.read("probe", ["model=reader", word] if word.startswith("pages") else [word])


def test_keys_of_a_choice_are_known_once_it_is_chosen() -> None:
    assert "pages.columns.text='label'" not in read("model=reader", "pages=coco", "pages.columns.text=label")
    assert "pages.columns.text=label" in read("model=reader", "pages=coco", "pages.columns.text=label")


def test_a_sweep_over_choices_knows_the_keys_of_each() -> None:
    words = ["-m", "model=reader", "ocr=easyocr,words", "ocr.granularity=line,word", "shard=1/2,2/2"]
    assert line.read("probe", words).swept == ("ocr", "ocr.granularity", "shard")


def test_flags_and_overrides_may_stand_in_any_order() -> None:
    flags, typed = line.separate(["model=reader", "-m", "--cfg", "job", "seed=1,2"])
    assert flags == ["-m", "--cfg", "job"]
    assert typed == ["model=reader", "seed=1,2"]


def test_a_folder_of_own_configs_adds_choices(stand: Path) -> None:
    (stand / "mine" / "pages").mkdir(parents=True)
    (stand / "mine" / "pages" / "invoices.yaml").write_text("_target_: headscope.page.source.folder\npath: x\n")
    checked = line.read("probe", ["--config-dir", "mine", "model=reader", "pages=invoices", "pages.path=y"])
    assert checked.overrides == ("model=reader", "pages=invoices", "pages.path=y")


def test_an_experiment_changes_the_known_keys() -> None:
    words = ["model=qwen2-vl-7b", "experiment=sparsemm", "pages.columns.word=text"]
    assert line.read("probe", words).overrides == tuple(words)
