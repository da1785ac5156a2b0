"""Kimi-K3, which transformers does not know: its published totals, the parameter counts of an independent
implementation (`kimi_k3` of MLX-VLM 0.7.10, its routing bias left out), and work by hand."""

from __future__ import annotations

from math import prod
from typing import Any

import pytest

from flopcalc import FlopCounter, InvalidConfig, describe

TEXT: dict[str, Any] = {
    "vocab_size": 100, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 9, "num_attention_heads": 4,
    "kv_lora_rank": 16, "q_lora_rank": 24, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 12,
    "moe_intermediate_size": 20, "num_experts": 6, "num_experts_per_token": 2, "num_shared_experts": 2,
    "routed_expert_hidden_size": 28, "attn_res_block_size": 4,
}  # fmt: skip
DELTA = {
    "head_dim": 8, "num_heads": 6, "short_conv_kernel_size": 4, "use_full_rank_gate": True,
    "full_attn_layers": [4, 8, 9], "kda_layers": [1, 2, 3, 5, 6, 7],
}  # fmt: skip
VISION: dict[str, Any] = {
    "vt_hidden_size": 32, "vt_intermediate_size": 40, "vt_num_hidden_layers": 2, "vt_num_attention_heads": 3,
    "qkv_hidden_size": 48, "mm_hidden_size": 32, "init_pos_emb_height": 8, "init_pos_emb_width": 8,
}  # fmt: skip


def tiny(text: dict[str, Any] | None = None, vision: dict[str, Any] | None = None, **delta: Any) -> dict[str, Any]:
    text = TEXT | {"linear_attn_config": DELTA | delta} | (text or {})
    return {"model_type": "kimi_k3", "text_config": text, "vision_config": VISION | (vision or {})}


def test_the_released_model_has_its_published_totals() -> None:
    """2.78T parameters of which 104.2B are active (table 1 of its report); the tower comes on top."""
    tree = describe({"model_type": "kimi_k3"})
    text = sum(prod(shape) for name, shape in tree.parameters() if "language_model" in name or "lm_head" in name)
    assert round(text / 1e10) == 278
    assert round(tree.num_active_params() / 1e8) == 1042


@pytest.mark.parametrize(
    ("config", "published"),
    [
        (tiny(), 409_964),
        (tiny({"attn_res_block_size": 3}), 409_964),
        (tiny({"attn_res_block_size": None}), 407_532),
        (tiny({"q_lora_rank": None, "mla_use_output_gate": False}), 401_828),
        (tiny({"routed_expert_hidden_size": None}), 484_748),
        (tiny({"latent_moe_use_norm": False, "num_shared_experts": 0, "first_k_dense_replace": 3}), 357_068),
        (tiny(use_full_rank_gate=False), 396_908),
        (tiny({"moe_layer_freq": 2}), 396_668),
        (
            tiny(
                vision={
                    "attn_bias": True, "linear_bias": True, "patch_embed_proj_bias": True, "qkv_hidden_size": None,
                    "vt_num_attention_heads": 4,
                }
            ),
            406_300,
        ),
    ],
)  # fmt: skip
def test_altered_models_have_as_many_parameters_as_elsewhere(config: dict[str, Any], published: int) -> None:
    assert describe(config).num_params() == published


def test_mixers_read_the_sums_of_the_blocks_before_them() -> None:
    """Blocks of two, in three layers: the first attention reads its input alone. The sum of what is embedded
    stands from then on: two vectors for the MLP and the next layer, two for the third attention, which closes
    the block; three for its MLP and the output. Each is scored by 64 numbers."""
    mixed, plain = (
        tiny({"num_hidden_layers": 3, "attn_res_block_size": block}, full_attn_layers=[3], kda_layers=[1, 2])
        for block in (2, None)
    )
    kinds = FlopCounter(mixed, "matmul-dense", "forward").by_kind([10])
    assert kinds["stream_map"] == 10 * 2 * 64 * (2 + 2 + 2 + 2 + 3 + 3)
    added = describe(mixed).num_params() - describe(plain).num_params()
    assert added == 7 * 2 * 64, "the first attention has a norm and a projection too"


def test_a_video_meets_all_its_patches_and_leaves_as_one_frame() -> None:
    counter = FlopCounter(tiny(), "matmul-dense", "forward")
    work = counter.breakdown([], images=[(3, 4, 6)])
    block = 32 * 3 * 48 + 48 * 32 + 2 * 32 * 40
    patches, merged = 72, 6
    assert work.by_module()["model.vision_tower.encoder.blocks"] == 2 * (
        2 * block * patches + 2 * 3 * (16 + 16) * patches**2
    )
    assert work.by_module()["model.mm_projector"] == 2 * merged * (128 * 128 + 128 * 64)


@pytest.mark.parametrize(
    ("config", "named"),
    [
        (tiny(vision={"mm_projector_type": "mlp"}), "mm_projector_type"),
        (tiny(vision={"mm_hidden_size": 64}), "mm_hidden_size: found 64"),
        (tiny(vision={"vt_num_attention_heads": 5}), "vt_num_attention_heads = 5"),
        (tiny(kda_layers=[1, 2]), "kda_layers"),
        ({**TEXT, "model_type": "kimi_linear"}, "counted as the text_config of a kimi_k3"),
    ],
)
def test_what_is_not_known_of_it_is_a_named_error(config: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidConfig, match=named):
        describe(config)
