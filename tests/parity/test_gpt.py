"""Our GPT is GPT-2: transformers' modules with the same weights give the same numbers, and what is cached changes none.

Every comparison is of all tokens, in float32, within 1e-5, with sequences of several lengths in one pack.
"""

from __future__ import annotations

import logging

import numpy as np
import pytest
import torch

from filbert.core.errors import InputError
from filbert.core.records import Encoding, Packed
from filbert.models import gpt
from filbert.nn.attention import tensors
from filbert.pack.lay import pack

transformers = pytest.importorskip("transformers")
logging.getLogger("transformers").setLevel(logging.ERROR)
LENGTHS = [1, 96, 2, 3, 17, 17, 64, 33]
SHAPE = {"vocab_size": 97, "width": 48, "layers": 3, "heads": 4, "inner": 80, "max_length": 96, "dropout": 0.0}


def sequences_of(*lengths: int) -> list[Encoding]:
    random = np.random.default_rng(7)
    rows = [random.integers(0, 97, length).astype(np.int32) for length in lengths]
    return [Encoding(row, *(np.zeros_like(row) for _ in range(4))) for row in rows]


def packed_of(*sequences: Encoding) -> Packed:
    return tensors(pack(sequences)[0])


@pytest.fixture(scope="module")
def theirs() -> torch.nn.Module:
    torch.manual_seed(0)
    model = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=97, n_embd=48, n_layer=3, n_head=4, n_inner=80, n_positions=96)
    )
    for weight in model.parameters():  # wider than the usual start, so that a mistake cannot hide in small numbers
        torch.nn.init.normal_(weight, std=0.2)
    return model.eval()


@pytest.fixture
def ours(theirs: torch.nn.Module) -> gpt.Gpt:
    config = gpt.Config(**SHAPE)
    model = gpt.Gpt(config, ("lm",))
    model.load_state_dict(gpt.from_gpt2(theirs.state_dict(), config))
    return model.eval()


def test_vectors_scores_and_gradients(theirs: torch.nn.Module, ours: gpt.Gpt) -> None:
    sequences = sequences_of(*LENGTHS)
    packed, starts = pack(sequences)
    got_TD = ours(tensors(packed))
    got_TV = ours.word_scores(got_TD)
    rows = torch.cat([torch.arange(len(s)) + int(at) for s, at in zip(sequences, starts, strict=True)])
    wanted = []
    for sequence in sequences:
        ids = torch.from_numpy(sequence.ids).long()[None]
        vectors, scores = theirs.transformer(ids).last_hidden_state[0], theirs(ids).logits[0]
        wanted.append((vectors, scores))
    wanted_TD, wanted_TV = (torch.cat(column) for column in zip(*wanted, strict=True))
    torch.testing.assert_close(got_TD[rows], wanted_TD, atol=1e-5, rtol=0)
    torch.testing.assert_close(got_TV[rows], wanted_TV, atol=1e-5, rtol=1e-5)

    weight = torch.randn_like(wanted_TV) / len(wanted_TV)
    theirs.zero_grad()
    (got_TV[rows] * weight).sum().backward()
    (wanted_TV * weight).sum().backward()
    gradients = {name: parameter.grad for name, parameter in theirs.named_parameters()}
    reference = gpt.from_gpt2(gradients, ours.config)
    for name, parameter in ours.named_parameters():
        assert parameter.grad is not None, name
        scale = reference[name].abs().max().clamp(min=1.0)
        torch.testing.assert_close(parameter.grad / scale, reference[name] / scale, atol=1e-5, rtol=0, msg=name)


def test_folders_of_either_class_are_read(theirs: torch.nn.Module, ours: gpt.Gpt) -> None:
    bare = gpt.from_gpt2(theirs.transformer.state_dict(), ours.config)
    assert all(torch.equal(value, bare[name]) for name, value in ours.state_dict().items())
    with pytest.raises(InputError, match=r"GPT-2 of 4 layers: h\.3\.ln_1\.weight is missing"):
        gpt.from_gpt2(theirs.state_dict(), gpt.Config(**{**SHAPE, "layers": 4}))


def test_rows_asked_for_are_the_rows(ours: gpt.Gpt) -> None:
    packed = packed_of(*sequences_of(*LENGTHS))
    with torch.inference_mode():
        everything = ours(packed)
        some = torch.tensor([0, 5, 1, 100, len(everything) - 1])
        torch.testing.assert_close(ours(packed, some), everything[some], atol=1e-5, rtol=0)
        torch.testing.assert_close(ours(packed, "first"), everything[packed.boundaries[:-1].long()], atol=1e-5, rtol=0)


def test_no_token_sees_a_later_one_or_another_sequence(ours: gpt.Gpt) -> None:
    """By gradients: what the vector of a token hangs on are its own tokens up to it, all of them."""
    packed = packed_of(*sequences_of(6, 9, 9))
    begin, end = packed.boundaries.tolist()[1:3]
    at = begin + 4
    rows: list[torch.Tensor] = []

    def watch(module: object, given: object, out: torch.Tensor) -> torch.Tensor:
        rows.append(out.detach().requires_grad_())
        return rows[0]

    handle = ours.embeddings.register_forward_hook(watch)
    ours(packed)[at].sum().backward()
    handle.remove()
    assert rows[0].grad is not None
    seen = rows[0].grad.abs().sum(1) > 0
    assert seen.nonzero()[:, 0].tolist() == list(range(begin, at + 1))
    assert end > at + 1


@pytest.mark.parametrize("lengths", [(5, 5, 5), (0, 1, 3, 17, 80), (0,), (90,)])
def test_cached_equals_uncached(ours: gpt.Gpt, lengths: tuple[int, ...]) -> None:
    """Prompts of any lengths, six tokens more of each: the same scores as reading everything anew."""
    prompts = sequences_of(*sorted(lengths))  # a pack has them in this order
    more = torch.from_numpy(np.random.default_rng(1).integers(0, 97, (len(prompts), 6)))
    with torch.inference_mode():
        state = ours.started(packed_of(*prompts))
        for step in range(6):
            scores, state = ours.step(more[:, step], state)
            assert scores.dtype == torch.float32
            for row, prompt in enumerate(prompts):
                ids = np.concatenate((prompt.ids, more[row, : step + 1].numpy())).astype(np.int32)
                whole = packed_of(Encoding(ids, *(np.zeros_like(ids) for _ in range(4))))
                wanted = ours.word_scores(ours(whole)[-1])
                torch.testing.assert_close(scores[row], wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("lengths", [(3, 7, 7), (5, 5, 5)])
@pytest.mark.parametrize("width", [0, 1, 3])
def test_a_selected_state_goes_on_as_its_text(ours: gpt.Gpt, lengths: tuple[int, ...], width: int) -> None:
    """Rows change places, are doubled and left out, in groups of a beam or freely (0); each goes on as alone."""
    prompts, random = sequences_of(*lengths), np.random.default_rng(3)
    texts = [list(prompt.ids) for prompt in prompts for _ in range(width or 1)]
    with torch.inference_mode():
        state = ours.started(packed_of(*prompts))
        state = state.spread(width) if width else state
        for step in range(30):
            following = random.integers(0, 97, len(texts))
            texts = [[*text, token] for text, token in zip(texts, following, strict=True)]
            scores, state = ours.step(torch.from_numpy(following), state)
            if step % 10 == 9:
                for row, text in enumerate(texts):
                    ids = np.array(text, dtype=np.int32)
                    alone = ours(packed_of(Encoding(ids, *(np.zeros_like(ids) for _ in range(4)))))
                    torch.testing.assert_close(scores[row], ours.word_scores(alone[-1]), atol=1e-5, rtol=1e-5)
            groups = np.arange(len(texts)).reshape(-1, max(width, 1))
            groups = np.delete(groups, 1, axis=0) if step == 14 else groups
            rows = [random.choice(group, len(group)) for group in groups] if width else [random.choice(len(texts), 3)]
            texts = [texts[row] for row in np.concatenate(rows)]
            state = state.select(torch.from_numpy(np.concatenate(rows)))


def test_a_memory_grows_beyond_its_room(ours: gpt.Gpt) -> None:
    """95 steps from nothing, more than the room it begins with; then the model is at its end and says so."""
    ids = torch.from_numpy(np.random.default_rng(2).integers(0, 97, 96))
    with torch.inference_mode():
        state = ours.started(packed_of(*sequences_of(0)))
        for token in ids:
            scores, state = ours.step(token[None], state)
        row = ids.numpy().astype(np.int32)
        whole = ours(packed_of(Encoding(row, *(np.zeros_like(row) for _ in range(4)))))
        torch.testing.assert_close(scores[0], ours.word_scores(whole[-1]), atol=1e-5, rtol=1e-5)
        with pytest.raises(InputError, match="has 97 tokens, but the model reads only 96"):
            ours.step(ids[:1], state)


def test_bfloat16_and_nothing_at_all(ours: gpt.Gpt) -> None:
    half, packed = ours.to(torch.bfloat16), packed_of(*sequences_of(1, 5))
    with torch.inference_mode():
        assert half(packed).dtype == torch.bfloat16
        scores, _ = half.step(torch.tensor([1, 2]), half.started(packed))
        assert scores.dtype == torch.float32
        assert scores.isfinite().all()
        assert half(packed_of()).shape == (0, 48)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"layers": 0}, "layers is 0, but must be a whole number from 1 to 1,000"),
        ({"dropout": 1.0}, "dropout is 1.0"),
        ({"heads": 5}, "width 48 cannot be shared by 5 heads"),
    ],
)
def test_a_wrong_shape_is_named(wrong: dict[str, object], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        gpt.Config(**{**SHAPE, **wrong})
    with pytest.raises(InputError, match="Did you mean 'small'"):
        gpt.SPEC.preset("smal", 10)
