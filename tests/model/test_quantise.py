"""Codebooks: the nearest code, moving averages, dead codes, several processes."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist

from genpolicy_policy_model.quantise import Codebooks, perplexity


def test_the_nearest_code_is_chosen_and_its_gradient_goes_through() -> None:
    """The encoder's gradient is the decoder's and 2 beta (z - e); moving averages leave codes without any."""
    torch.manual_seed(0)
    books = Codebooks(2, 5, 3)
    vectors = torch.randn(7, 2, 3, requires_grad=True)
    quantised = books(vectors)
    for row in range(7):
        for book in range(2):
            far = [float((vectors[row, book] - e).detach().square().sum()) for e in books.embeddings[book]]
            assert int(quantised.codes[row, book]) == int(np.argmin(far))
    chosen = books.vectors_of(quantised.codes)
    torch.testing.assert_close(quantised.vectors, chosen)
    of_decoder, beta = torch.randn(7, 2, 3), 0.25
    ((quantised.vectors * of_decoder).sum() + beta * quantised.commitment.sum()).backward()
    torch.testing.assert_close(vectors.grad, of_decoder + 2 * beta * (vectors - chosen).detach())
    assert books.embeddings.grad is None
    learned = Codebooks(1, 4, 3, by="gradient")
    z = torch.randn(6, 1, 3, requires_grad=True)
    learned(z).codebook.sum().backward()
    assert z.grad is None
    assert learned.embeddings.grad is not None


def test_moving_averages_are_those_of_the_formula() -> None:
    torch.manual_seed(1)
    books, generator = Codebooks(1, 3, 2, decay=0.9, revive_below=1e-6), torch.Generator().manual_seed(0)
    books.counts.fill_(2.0)
    books.sums.copy_(2 * books.embeddings)
    before = books.embeddings.clone()
    vectors, codes = torch.randn(4, 1, 2), torch.tensor([[0], [2], [2], [2]])
    books.update(vectors, codes, generator)
    for code, rows in ((0, [0]), (1, []), (2, [1, 2, 3])):
        count = 0.9 * 2 + 0.1 * len(rows)
        total = 0.9 * 2 * before[0, code] + 0.1 * vectors[rows, 0].sum(0)
        torch.testing.assert_close(books.embeddings[0, code], total / count)


def _updated(rank: int, folder: str, parts: list[torch.Tensor]) -> None:
    """One of two processes: their codebook's updates by its parts of some batches, saved to a file."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    books = _seen_by_two(parts, torch.Generator().manual_seed(rank))
    torch.save(books.state_dict(), f"{folder}/{rank}.pt")
    dist.destroy_process_group()


def _seen_by_two(parts: list[torch.Tensor], generator: torch.Generator) -> Codebooks:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        books = Codebooks(2, 4, 3, decay=0.5)
    # Dead codes, which begin anew, are drawn by one process alone; without them the averages can be told exactly.
    books.counts.fill_(8.0)
    books.sums.copy_(8 * books.embeddings)
    for part in parts:
        books.update(part, books.nearest(part), generator)
    return books


def test_two_processes_move_one_codebook_as_one_does(tmp_path: Path) -> None:
    """One of them has no transition in the second batch, and in the third all codes but a few have died in both."""
    drawn = [torch.randn(2, 6, 2, 3, generator=torch.Generator().manual_seed(seed)) for seed in range(3)]
    parts = [[*(batch[rank] for batch in drawn[:2])] for rank in range(2)]
    parts[0][1] = parts[0][1][:0]
    context = multiprocessing.get_context("fork")
    for last in (False, True):
        if last:
            for rank in range(2):
                parts[rank] += [drawn[2][rank, :rank].expand(-1, -1, -1)] * 8
        folder = tmp_path / str(last)
        folder.mkdir()
        processes = [context.Process(target=_updated, args=(rank, str(folder), parts[rank])) for rank in range(2)]
        for process in processes:
            process.start()
        for process in processes:
            process.join(60)
            assert process.exitcode == 0
        first, second = (torch.load(folder / f"{rank}.pt") for rank in range(2))
        assert all(torch.equal(first[name], second[name]) for name in first)
        if not last:
            both = [torch.cat(pair) for pair in zip(*parts, strict=True)]
            one = _seen_by_two(both, torch.Generator()).state_dict()
            for name, value in one.items():
                torch.testing.assert_close(first[name], value)


def test_dead_codes_begin_anew_at_vectors_of_the_batch() -> None:
    books, generator = Codebooks(1, 6, 2), torch.Generator().manual_seed(0)
    vectors = torch.randn(40, 1, 2, generator=generator) + 30
    books.update(vectors, books.nearest(vectors), generator)
    at_one = [bool((vectors[:, 0] == e).all(-1).any()) for e in books.embeddings[0]]
    assert sum(at_one) == 5  # all but the one that every vector chose, which lies at their mean
    for _ in range(300):
        books.update(vectors, books.nearest(vectors), generator)
    assert float(books.perplexity()) > 4
    unchanged = books.embeddings.clone()
    books.update(vectors[:0], torch.zeros(0, 1, dtype=torch.int64), generator)
    torch.testing.assert_close(books.embeddings, unchanged)


def test_codes_in_use_are_at_most_all_and_one_for_one_transition() -> None:
    books, generator = Codebooks(2, 6, 3), torch.Generator().manual_seed(0)
    vectors = torch.randn(100, 2, 3, generator=generator)
    for _ in range(20):
        books.update(vectors, books.nearest(vectors), generator)
    assert bool((books.perplexity() <= 6 + 1e-4).all())
    one = books.nearest(vectors[:1].expand(50, -1, -1))
    torch.testing.assert_close(perplexity(one, 6), torch.ones(2))


@pytest.mark.parametrize(("num_codes", "batch"), [(4, 128), (64, 64), (64, 384)])
def test_one_code_for_everything_is_one_in_use_though_the_others_begin_anew(num_codes: int, batch: int) -> None:
    books, generator = Codebooks(1, num_codes, 2), torch.Generator().manual_seed(0)
    vectors = torch.ones(batch, 1, 2)
    for _ in range(100):
        books.update(vectors, books.nearest(vectors), generator)
    assert 1 <= float(books.perplexity()) < 1.1


@pytest.mark.parametrize("least", [0.5, 1.0, 10.0])
def test_a_code_that_begins_anew_stays_where_enough_vectors_choose_it(least: float) -> None:
    """Eight places, each with 32 vectors of a batch: three times what a code needs at most."""
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    places, books = 5 * torch.randn(8, 4), Codebooks(1, 8, 4, revive_below=least)
    drawn = [places[torch.randint(8, (256,), generator=generator)][:, None] for _ in range(300)]
    for vectors in drawn:
        books.update(vectors, books.nearest(vectors), generator)
    assert bool((books.counts > least).all())
    assert float(books.perplexity()) > 7
