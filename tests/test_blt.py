"""BLT by hand, and against the real model with its patches cut on the CPU, where its modes say how many
there are: none of them follows from lengths where the model cuts by itself."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from flopcalc import FlopCounter, InvalidConfig, UnsupportedModel, describe
from flopcalc.tree import MATMUL_KINDS
from flopcalc.verify import EAGER, operator_flops, verify

SMALL: dict[str, Any] = {
    "model_type": "blt",
    "vocab_size": 20,
    "local_attention_window_len": 5,
    "encoder_hash_byte_group_vocab": 7,
    "patcher_config": {
        "vocab_size": 20, "hidden_size": 12, "num_attention_heads": 3, "num_hidden_layers": 1, "intermediate_size": 10,
        "sliding_window": 4,
    },
    "encoder_config": {
        "vocab_size": 20, "hidden_size": 8, "num_attention_heads": 2, "num_key_value_heads": 1, "num_hidden_layers": 1,
        "intermediate_size": 6,
    },
    "decoder_config": {
        "hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 2, "intermediate_size": 6,
        "hidden_size_global": 24,
    },
    "global_config": {"hidden_size": 24, "num_attention_heads": 2, "num_hidden_layers": 2, "intermediate_size": 10},
}  # fmt: skip


def changed(**parts: Any) -> dict[str, Any]:
    """The small model with other fields, those of a part beside its own."""
    return SMALL | {name: SMALL[name] | part if isinstance(part, dict) else part for name, part in parts.items()}


def split(config: dict[str, Any], tokens: int, convention: Any = "exact") -> tuple[int, int]:
    """Forward FLOPs of matrices and of attention."""
    kinds = FlopCounter(config, convention, "forward").breakdown([tokens]).by_kind()
    return sum(flops for kind, flops in kinds.items() if kind in MATMUL_KINDS), kinds["attention"]


def test_bytes_patches_and_their_vectors_each_meet_their_own_matrices() -> None:
    """10 bytes in 4 patches of 2 vectors each."""
    patcher = 4 * 12 * 12 + 3 * 12 * 10 + 12 * 20
    encoder = 2 * 8 * 8 + 2 * 8 * 4 + 3 * 8 * 6
    decoder = 2 * (4 * 8 * 8 + 3 * 8 * 6)
    a_byte = patcher + encoder + 2 * 8 * 4 + decoder + 2 * (2 * 8 * 8) + 8 * 20
    a_patch = 8 * 16 + 16 * 24 + 2 * (4 * 24 * 24 + 3 * 24 * 10) + 24 * 16
    a_vector = 2 * 8 * 8 + 2 * (2 * 8 * 8)
    weights, attention = split(SMALL | {"bytes_per_patch": 2.5}, 10)
    assert weights == 2 * (10 * a_byte + 4 * a_patch + 8 * a_vector) == 117536
    windows = 2 * 3 * 8 * (1 + 2 + 3 + 7 * 4) + 3 * (2 * 2 * 8) * (1 + 2 + 3 + 4 + 6 * 5)
    latent = 2 * (2 * 2 * 24) * (1 + 2 + 3 + 4)
    own_patch = 3 * (2 * 2 * 8) * (10 * 2)
    assert attention == windows + latent + own_patch == 9312


def test_patches_are_as_many_as_their_mean_length_says_rounded_up() -> None:
    def latent(tokens: int, mean: float) -> int:
        by_module = FlopCounter(SMALL | {"bytes_per_patch": mean}, "exact", "forward").breakdown([tokens]).by_module()
        return by_module["model.global_transformer.token_embedding_projection"]

    of_one = 2 * 16 * 24
    found = [latent(n, mean) // of_one for n, mean in [(0, 4.5), (1, 4.5), (9, 4.5), (10, 4.5), (90, 4.456), (7, 1)]]
    assert found == [0, 1, 2, 3, 21, 7]


def test_a_document_without_bytes_has_no_patches() -> None:
    assert FlopCounter(SMALL | {"patching_mode": "static"})([0]) == 0


@pytest.mark.parametrize("convention", ["standard", "exact", "verl"])
def test_patches_that_the_text_decides_are_not_counted(convention: str) -> None:
    with pytest.raises(UnsupportedModel, match="add bytes_per_patch"):
        FlopCounter(SMALL, convention)


def test_the_default_table_is_that_of_the_real_model() -> None:
    assert verify({"model_type": "blt"}, lengths=()).parameters_equal


def test_the_patcher_runs_forward_only() -> None:
    """Every other matrix and attention runs three passes."""
    config = SMALL | {"bytes_per_patch": 2.5}
    forward, train = (FlopCounter(config, "exact", phase).breakdown([10]).by_module() for phase in ("forward", "train"))
    assert train["model.patcher"] == forward["model.patcher"] == 2 * 10 * 1176 + 1632
    assert train[""] - train["model.patcher"] == 3 * (forward[""] - forward["model.patcher"])


STATIC = {"patching_mode": "static"}


@pytest.mark.parametrize(
    "config",
    [
        changed(**STATIC),
        changed(patch_in_forward=False),
        changed(**STATIC, tie_word_embeddings=True, vocab_size=30),
        changed(**STATIC, local_attention_window_len=None, encoder_hash_byte_group_size=[9, 2]),
        changed(**STATIC, encoder_hash_byte_group_nb_functions=2, patcher_config={"num_key_value_heads": 1}),
        changed(**STATIC, encoder_config={"num_hidden_layers": 3, "cross_attn_all_layers": True}),
        changed(**STATIC, decoder_config={"num_key_value_heads": 1, "cross_attn_all_layers": False}),
        changed(
            **STATIC, cross_attn_k=3, encoder_config={"cross_attn_k": 3}, decoder_config={"cross_attn_k": 3},
        ),
        changed(**STATIC, global_config={"num_key_value_heads": 1}, encoder_config={"intermediate_size": None}),
    ],
)  # fmt: skip
def test_patches_of_one_byte_equal_the_real_model(config: dict[str, Any]) -> None:
    assert verify(config, lengths=(9, 20)).equal


@pytest.mark.parametrize(
    ("mode", "ours"),
    [
        ({"patch_size": None}, {"patch_size": None}),
        ({"patching_threshold": 100.0}, {"bytes_per_patch": 6.0}),  # two patches: a byte, and all others
        ({"patching_threshold": 100.0, "max_patch_length": 4}, {"bytes_per_patch": 3.0}),  # a byte, then 4, 4 and 3
    ],
)
def test_patches_cut_by_the_patcher_equal_the_real_model(mode: dict[str, Any], ours: dict[str, Any]) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(**changed(**mode))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    tree, ids = describe(SMALL | ours), torch.zeros(1, 12, dtype=torch.long)
    seen = operator_flops(tree, model, lambda: model(input_ids=ids, use_cache=False))
    assert seen == split(SMALL | ours, 12, EAGER)


@pytest.mark.parametrize(
    ("config", "named"),
    [
        (changed(cross_attn_k=3), "encoder_config.cross_attn_k: found 2, expected cross_attn_k = 3"),
        (changed(decoder_config={"hidden_size": 16}), "decoder_config.hidden_size: found 16"),
        (changed(global_config={"hidden_size": 16}), "decoder_config.hidden_size_global: found 24"),
        (changed(bytes_per_patch=0.5), "bytes_per_patch"),
        (changed(encoder_config={"num_key_value_heads": 3}), "num_attention_heads: found 2"),
    ],
)
def test_parts_that_do_not_fit_are_named(config: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidConfig, match=named):
        describe(config)
