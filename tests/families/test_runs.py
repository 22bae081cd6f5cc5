"""Placeholder runs: found in order, one for each picture, or refused."""

from __future__ import annotations

import pytest
import torch

from headscope.families.runs import one_each, pieces, prompt_ids, refuse_video, runs, same_number

IDS = torch.tensor([5, 5, 1, 5, 2, 3, 5, 5, 5])


def test_runs_are_the_longest_stretches_of_the_token_at_the_ends_too():
    assert runs(IDS, 5) == [(0, 2), (3, 4), (6, 9)]
    assert runs(IDS, 7) == []


def test_each_picture_has_its_own_run():
    assert one_each(IDS, 5, [2, 1, 3]) == [(0, 2), (3, 4), (6, 9)]


def test_pictures_with_nothing_between_them_share_a_stretch():
    assert one_each(IDS, 5, [1, 1, 1, 2, 1]) == [(0, 1), (1, 2), (3, 4), (6, 8), (8, 9)]


@pytest.mark.parametrize("lengths", [[2, 1], [2, 1, 3, 1], [2, 1, 2], [3, 1, 2], [2, 4], []])
def test_pictures_that_do_not_fill_the_runs_are_refused(lengths):
    with pytest.raises(ValueError, match=r"one placeholder run for each .* got 3 runs of \[2, 1, 3\] tokens"):
        one_each(IDS, 5, lengths)


def test_a_run_is_cut_into_pieces():
    assert pieces(3, [2, 0, 4]) == [(3, 5), (5, 5), (5, 9)]


def test_one_prompt_is_taken_with_and_without_its_batch_axis():
    assert torch.equal(prompt_ids({"input_ids": IDS}), IDS)
    assert torch.equal(prompt_ids({"input_ids": IDS[None]}), IDS)


def test_a_batch_is_refused():
    with pytest.raises(ValueError, match=r"`inputs` must hold one prompt, got `input_ids` of shape \[2, 9\]"):
        prompt_ids({"input_ids": torch.stack([IDS, IDS])})


def test_another_number_of_sizes_is_refused():
    with pytest.raises(ValueError, match="2 given, `image_grid_thw` has 1"):
        same_number("`image_grid_thw`", 1, [(1, 1), (2, 2)])


def test_video_is_refused_where_it_is_not_handled():
    refuse_video({"pixel_values": 1}, "llava")
    with pytest.raises(ValueError, match="`llava` is handled for pictures only, got video"):
        refuse_video({"pixel_values_videos": 1}, "llava")
