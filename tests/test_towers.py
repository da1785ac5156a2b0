"""Towers against the real ones: a tiny model is built on the CPU, its tower runs on two images of
different sizes, and our forward matmul FLOPs equal what the operator counter sees."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

import pytest
import torch
from transformers import AutoConfig, AutoModelForMultimodalLM

from flopcalc import FlopCounter, InvalidBatch, InvalidConfig, UnsupportedModel, describe
from flopcalc.tree import MATMUL_KINDS, Linear, Module, Stream
from flopcalc.verify import EAGER, operator_flops

TEXT = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "vocab_size": 64,
    "num_experts": 4,
    "moe_intermediate_size": 24,
    "num_experts_per_tok": 2,
}
PATCH = {"depth": 3, "num_heads": 2, "in_channels": 3, "patch_size": 4, "temporal_patch_size": 2}
QWEN3 = PATCH | {
    "hidden_size": 16,
    "intermediate_size": 40,
    "out_hidden_size": 32,
    "num_position_embeddings": 64,
}
GLM = PATCH | {"hidden_size": 16, "intermediate_size": 40, "out_hidden_size": 32, "image_size": 24}
GRIDS = [(1, 4, 6), (2, 8, 10)]

TOWERS: dict[str, dict[str, Any]] = {
    "qwen2_vl": PATCH | {"embed_dim": 16, "hidden_size": 32, "mlp_ratio": 3},
    "qwen2_5_vl": PATCH
    | {
        "hidden_size": 16,
        "intermediate_size": 40,
        "out_hidden_size": 32,
        "window_size": 16,  # windows of 4 x 4 patches
        "fullatt_block_indexes": [1],
    },
    "qwen3_vl": QWEN3 | {"deepstack_visual_indexes": [0, 1]},
    "qwen3_vl_moe": QWEN3 | {"deepstack_visual_indexes": [0, 1]},
    "qwen3_5": QWEN3,
    "qwen3_5_moe": QWEN3,
    "glm4v": GLM,
    "glm4v_moe": GLM,
    "glm46v": GLM,
    "qwen2_5_omni_thinker": PATCH
    | {
        "hidden_size": 16,
        "intermediate_size": 40,
        "out_hidden_size": 32,
        "window_size": 16,
        "fullatt_block_indexes": [1],
    },
    "qwen3_omni_moe_thinker": QWEN3 | {"deepstack_visual_indexes": [0, 1]},
}


def whole(model_type: str) -> dict[str, Any]:
    text = TEXT | ({"n_routed_experts": 4} if model_type == "glm4v_moe" else {})
    return {"model_type": model_type, "text_config": text, "vision_config": TOWERS[model_type]}


def real_model(config: dict[str, Any]) -> Any:
    """The whole model on the CPU."""
    fields = copy.deepcopy(config)
    real = AutoConfig.for_model(fields.pop("model_type"), **fields)
    return AutoModelForMultimodalLM.from_config(real, attn_implementation="eager").eval()


def seen(config: dict[str, Any], path: str, model: Any, run: Callable[[Any], Any]) -> tuple[int, int]:
    """(weight products, activation products) that the part of the model under `path` runs."""
    part = model.get_submodule(path)
    return seen_of(config, path, part, lambda: run(part))


def seen_of(config: dict[str, Any], path: str, part: Any, run: Callable[[], Any]) -> tuple[int, int]:
    with torch.no_grad():
        return operator_flops(describe(config), part, run, path)


def counted(config: dict[str, Any], text: Sequence[int] = (), **media: Any) -> tuple[int, int]:
    """Ours: (weight products, activation products) of text, images or audios."""
    by_kind = FlopCounter(config, EAGER, "forward").breakdown(list(text), **media).by_kind()
    weights = sum(flops for kind, flops in by_kind.items() if kind in MATMUL_KINDS)
    return weights, sum(by_kind.values()) - weights


@pytest.mark.parametrize("grid", GRIDS, ids=str)
@pytest.mark.parametrize("model_type", TOWERS)
def test_patch_tower_runs_the_flops_that_we_count(model_type: str, grid: tuple[int, int, int]) -> None:
    config = whole(model_type)
    pixels = torch.zeros(grid[0] * grid[1] * grid[2], 3 * 2 * 4 * 4)
    frames, height, width = grid
    video_by_frames = model_type.startswith("glm")  # as its get_video_features passes them
    grids = torch.tensor([(1, height, width)] * frames if video_by_frames else [grid])
    ran = seen(config, "model.visual", real_model(config), lambda tower: tower(pixels, grid_thw=grids))
    assert ran == counted(config, images=[grid])
    assert min(ran) > 0


LLAMA = TEXT | {"model_type": "llama"}
VIT = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "patch_size": 4,
}
IMAGE = 1  # the token that stands for an image's


class Case(NamedTuple):
    """A whole model, its images in patches, what it is called with, and the tokens that come out."""

    config: dict[str, Any]
    images: list[tuple[int, int, int]]
    inputs: dict[str, Any]
    tokens: int


def squares(model_type: str, side: int, merge: int, vision: dict[str, Any], **fields: Any) -> Case:
    """Two square images of side x side patches, merge x merge of which make one token."""
    vision = VIT | {"image_size": 4 * side} | vision
    config = {"model_type": model_type, "text_config": LLAMA, "vision_config": vision, **fields}
    pixels = torch.zeros(2, 3, 4 * side, 4 * side)
    return Case(config, [(1, side, side)] * 2, {"pixel_values": pixels}, 2 * (side // merge) ** 2)


def llava(side: int) -> Case:
    return squares("llava", side, 1, {"model_type": "clip_vision_model"}, image_token_index=IMAGE)


def llava_all_tokens_of_two_layers(side: int) -> Case:
    vision = {"model_type": "clip_vision_model"}
    layers = {"vision_feature_layer": [-3, 1], "vision_feature_select_strategy": "full"}
    case = squares("llava", side, 1, vision, image_token_index=IMAGE, multimodal_projector_bias=False, **layers)
    return case._replace(tokens=case.tokens + 2)  # the class tokens


def internvl(side: int) -> Case:
    return squares("internvl", side, 2, {}, image_token_id=IMAGE)


def internvl_with_query_norms(side: int) -> Case:
    vision = {"use_qk_norm": True, "attention_bias": True, "norm_type": "rms_norm", "use_mean_pooling": False}
    return squares("internvl", side, 2, vision, image_token_id=IMAGE, vision_feature_layer=-2)


def gemma3(side: int) -> Case:
    tokens = {"mm_tokens_per_image": (side // 2) ** 2, "image_token_index": IMAGE}
    vision = {"model_type": "siglip_vision_model", "vision_use_head": False}
    case = squares("gemma3", side, 2, vision, **tokens)
    case.config["text_config"] = TEXT
    return case


def smolvlm(side: int) -> Case:
    case = squares("smolvlm", side, 2, {}, image_token_id=IMAGE, scale_factor=2)
    case.inputs["pixel_values"] = torch.ones(1, 2, 3, 4 * side, 4 * side)  # zeros would be padding
    return case


def mistral3(side: int) -> Case:
    height, width = side, side + 4
    config = {
        "model_type": "mistral3",
        "text_config": LLAMA,
        "vision_config": VIT | {"model_type": "pixtral", "image_size": 64},
        "image_token_index": IMAGE,
    }
    inputs = {
        "pixel_values": torch.zeros(1, 3, 4 * height, 4 * width),
        "image_sizes": torch.tensor([[4 * height, 4 * width]]),
    }
    return Case(config, [(1, height, width)], inputs, height * width // 4)


def kimi_k25(side: int) -> Case:
    grid = (side // 4, side, side + 2)  # a video, for the larger of the sides
    vision = VIT | {"pos_emb_height": 8, "pos_emb_width": 8}
    config = {"model_type": "kimi_k25", "text_config": LLAMA, "vision_config": vision, "image_token_id": IMAGE}
    config["projection_hidden_size"] = 16
    inputs = {"pixel_values": torch.zeros(prod(grid), 3, 4, 4), "image_grid_thw": torch.tensor([grid])}
    return Case(config, [grid], inputs, side * (side + 2) // 4)


def minicpmv4_6(side: int, **fields: Any) -> Case:
    grid = (1, side, 2 * side)
    config = {"model_type": "minicpmv4_6", "text_config": LLAMA, "vision_config": VIT | {"image_size": 64}}
    config |= {"image_token_id": IMAGE, "insert_layer_id": 1} | fields
    inputs = {"pixel_values": torch.zeros(1, 3, 4, 4 * prod(grid)), "target_sizes": torch.tensor([grid[1:]])}
    return Case(config, [grid], inputs, prod(grid) // 16)


def minicpmv4_6_without_the_inner_merger(side: int) -> Case:
    case = minicpmv4_6(side, downsample_mode="4x")
    return case._replace(tokens=4 * case.tokens)


def minicpmv4_6_merging_twice(side: int) -> Case:
    case = minicpmv4_6(2 * side, merger_times=2)
    return case._replace(tokens=case.tokens // 4)


def step3p7(side: int) -> Case:
    case = squares("step3p7", side, 4, {"mlp_ratio": 1.5}, image_token_id=IMAGE, projector_bias=True)
    case.config["text_config"] = TEXT | {
        "n_routed_experts": 4, "share_expert_dim": 40, "sliding_window": 3, "num_sliding_attention_heads": 6,
        "layer_types": ["full_attention", "sliding_attention"], "moe_layers_enum": [1],
    }  # fmt: skip
    return case


WHOLE = [
    llava,
    llava_all_tokens_of_two_layers,
    internvl,
    internvl_with_query_norms,
    gemma3,
    smolvlm,
    mistral3,
    kimi_k25,
    minicpmv4_6,
    minicpmv4_6_without_the_inner_merger,
    minicpmv4_6_merging_twice,
    step3p7,
]


def run_whole(case: Case) -> tuple[int, int]:
    """(weight products, activation products) of the real model on its images and three words."""
    ids = torch.tensor([[IMAGE] * case.tokens + [5, 6, 7]])
    model = real_model(case.config)
    with torch.no_grad():
        return operator_flops(
            describe(case.config), model, lambda: model(input_ids=ids, **case.inputs, use_cache=False)
        )


@pytest.mark.parametrize("side", [4, 8])
@pytest.mark.parametrize("make", WHOLE, ids=lambda make: make.__name__)
def test_whole_model_runs_the_flops_that_we_count(make: Callable[[int], Case], side: int) -> None:
    case = make(side)
    ran = run_whole(case)
    assert ran == counted(case.config, [case.tokens + 3], images=case.images)
    assert min(ran) > 0
    patches = [frames * height * width for frames, height, width in case.images]
    if all(frames == 1 for frames, _, _ in case.images):
        assert ran == counted(case.config, [case.tokens + 3], images=patches)


@pytest.mark.parametrize("layer", [-1, -2])
def test_internvl_as_first_published_costs_what_its_transformers_form_does(layer: int) -> None:
    sizes = VIT | {"image_size": 16}
    text = LLAMA | {"tie_word_embeddings": True}
    norms = {"norm_type": "rms_norm", "attention_bias": True, "use_qk_norm": True}
    now = {"model_type": "internvl", "text_config": text, "vision_config": sizes | norms, "vision_feature_layer": layer}
    norms = {"norm_type": "rms_norm", "qkv_bias": True, "qk_normalization": True}
    first = {"model_type": "internvl_chat", "llm_config": text, "vision_config": sizes | norms, "select_layer": layer}
    assert describe(first).num_params() == describe(now).num_params()
    for convention in ("standard", "exact"):
        counter, judged = FlopCounter(first, convention), FlopCounter(now, convention)
        assert counter([30], images=[16, 16]) == judged([30], images=[16, 16]) > judged([30])


class Resampler(torch.nn.Module):
    """As published beside MiniCPM-V 2.6, the sums with positions left out."""

    def __init__(self, width: int, out: int, queries: int) -> None:
        super().__init__()
        self.query = torch.nn.Parameter(torch.zeros(queries, out))
        self.kv_proj = torch.nn.Linear(width, out, bias=False)
        self.attn = torch.nn.MultiheadAttention(out, out // 128)
        self.ln_q, self.ln_kv, self.ln_post = (torch.nn.LayerNorm(out) for _ in range(3))
        self.proj = torch.nn.Parameter(torch.zeros(out, out))

    def forward(self, patches: Any) -> Any:
        keys = self.ln_kv(self.kv_proj(patches)).permute(1, 0, 2)
        queries = self.ln_q(self.query)[:, None].repeat(1, keys.shape[1], 1)
        read = self.attn(queries, keys + 0, keys)[0].permute(1, 0, 2)
        return self.ln_post(read) @ self.proj


def test_resampler_of_minicpmv_runs_the_flops_that_we_count() -> None:
    text = {"hidden_size": 256, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2}
    config = {"model_type": "minicpmv", "version": 2.6, "query_num": 5, "vision_config": VIT, **text}
    real = Resampler(16, 256, 5)
    ours = {name: shape for name, shape in describe(config).parameters() if name.startswith("resampler.")}
    assert ours == {f"resampler.{name}": tuple(tensor.shape) for name, tensor in real.named_parameters()}
    ran = seen_of(config, "resampler", real, lambda: real(torch.zeros(2, 24, 16)))
    rows = FlopCounter(config, EAGER, "forward").breakdown([], images=[24, 24]).by_module()
    assert sum(ran) == rows["resampler"]


@pytest.mark.parametrize(("version", "named"), [(2.5, "2.5"), (None, "None"), ("4.0", "'4.0'")])
def test_other_minicpmv_are_refused_by_their_version(version: Any, named: str) -> None:
    with pytest.raises(InvalidConfig, match=f"version: found {named}"):
        describe({"model_type": "minicpmv", "version": version})


PHI3_V = {
    "model_type": "phi3_v",
    "img_processor": {
        "name": "clip_vision_model",
        "model_name": "openai/clip-vit-large-patch14-336",
        "image_dim_out": 1024,
        "num_img_tokens": 144,
    },
    "embd_layer": {
        "embedding_cls": "image",
        "projection_cls": "mlp",
        "use_hd_transform": True,
        "with_learnable_separator": True,
    },
}


@pytest.mark.parametrize(("rows", "columns", "tokens"), [(1, 1, 313), (2, 3, 1045)])
def test_crops_of_phi3_v_cost_what_as_many_images_of_clip_do(rows: int, columns: int, tokens: int) -> None:
    """Tokens are 144 a crop, one of which is the whole image, 12 ends of rows for each row of crops, and one."""
    crops, images = rows * columns + 1, [(1, 24 * rows, 24 * columns)]
    for convention in ("standard", EAGER):
        judged = FlopCounter("llava-hf/llava-1.5-7b-hf", convention).breakdown([], images=[576] * crops).by_module()
        modules = FlopCounter(PHI3_V, convention).breakdown([], images=images).by_module()
        embedding = "model.vision_embed_tokens"
        assert modules[f"{embedding}.img_processor"] == judged["model.vision_tower"] > 0
    assert modules[f"{embedding}.img_projection"] == 6 * tokens * (4096 * 3072 + 3072 * 3072)


def test_phi3_v_needs_the_grid_of_an_image_and_no_tower_for_text() -> None:
    text = FlopCounter({"model_type": "phi3"})([100])
    assert FlopCounter(PHI3_V)([100]) == FlopCounter({"model_type": "phi3_v"})([100]) == text
    with pytest.raises(InvalidBatch, match="height, width"):
        FlopCounter(PHI3_V)([100], images=[576])
    with pytest.raises(InvalidConfig, match="use_hd_transform: found False"):
        describe(PHI3_V | {"embd_layer": PHI3_V["embd_layer"] | {"use_hd_transform": False}})


@pytest.mark.parametrize("side", [4, 8])
def test_the_pooling_head_of_siglip_runs_forward_for_nothing(side: int) -> None:
    vision = {"model_type": "siglip_vision_model", "vision_use_head": True}
    case = squares("llava", side, 1, vision, image_token_index=IMAGE, vision_feature_select_strategy="full")
    weights, pairs = run_whole(case)
    ours, our_pairs = counted(case.config, [case.tokens + 3], images=case.images)
    assert weights == ours
    # products of a single row are not seen: one query of 16 numbers meets the patches of two images
    assert pairs + 2 * (2 * side**2) * (16 + 16) == our_pairs
    modules = FlopCounter(case.config, EAGER).breakdown([], images=case.images).by_module()
    ahead = FlopCounter(case.config, EAGER, "forward").breakdown([], images=case.images).by_module()
    for unread in ("head", "encoder.layers.2"):
        assert modules[f"model.vision_tower.{unread}"] == ahead[f"model.vision_tower.{unread}"] > 0
    assert modules["model.vision_tower.encoder.layers.1"] == 3 * ahead["model.vision_tower.encoder.layers.1"]


@pytest.mark.parametrize("side", [4, 8])
def test_the_product_that_stretches_positions_of_siglip2_is_not_counted(side: int) -> None:
    grid, positions = (1, side, 2 * side), 9
    vision = {"model_type": "siglip2_vision_model", "vision_use_head": False, "num_patches": positions}
    text = TEXT | {"model_type": "lfm2", "layer_types": ["conv", "full_attention"]}
    config = {"model_type": "lfm2_vl", "text_config": text, "vision_config": VIT | vision, "image_token_id": IMAGE}
    inputs = {
        "pixel_values": torch.zeros(1, prod(grid), 3 * 4 * 4),
        "spatial_shapes": torch.tensor([grid[1:]]),
        "pixel_attention_mask": torch.ones(1, prod(grid), dtype=torch.long),
    }
    case = Case(config, [grid], inputs, prod(grid) // 4)
    weights, pairs = run_whole(case)
    ours, our_pairs = counted(config, [case.tokens + 3], images=case.images)
    assert pairs == our_pairs > 0
    assert weights == ours + 2 * prod(grid) * positions * VIT["hidden_size"]


@pytest.mark.parametrize("side", [4, 8])
def test_tower_of_llama4_runs_the_flops_that_we_count(side: int) -> None:
    vision = {"vision_output_dim": 20, "projector_input_dim": 20, "projector_output_dim": 20, "intermediate_size": 64}
    case = squares("llama4", side, 2, vision)
    case.config["text_config"] = TEXT | {"num_local_experts": 4, "num_experts_per_tok": 1}
    model = real_model(case.config)
    tower = seen(case.config, "vision_model", model, lambda part: part(case.inputs["pixel_values"]))
    features = torch.zeros(case.tokens, 20)
    projector = seen(case.config, "multi_modal_projector", model, lambda part: part(features))
    assert (tower[0] + projector[0], tower[1] + projector[1]) == counted(case.config, images=case.images)


AUDIO = {"num_mel_bins": 12, "encoder_layers": 2, "encoder_attention_heads": 2, "encoder_ffn_dim": 24, "d_model": 16}
AUDIOS: dict[str, dict[str, Any]] = {
    "qwen2_5_omni_thinker": AUDIO | {"n_window": 8, "output_dim": 32},  # chunks of 16 frames
    "qwen3_omni_moe_thinker": AUDIO
    | {"n_window": 50, "n_window_infer": 200, "output_dim": 32, "downsample_hidden_size": 4},
}
FRAMES = {"qwen2_5_omni_thinker": [9, 48], "qwen3_omni_moe_thinker": [27, 500]}


@pytest.mark.parametrize(
    ("model_type", "frames"), [(model_type, n) for model_type, lengths in FRAMES.items() for n in lengths]
)
def test_audio_tower_runs_the_flops_that_we_count(model_type: str, frames: int) -> None:
    """Lengths that need no padding: less than one chunk, and whole chunks."""
    config = whole(model_type) | {"audio_config": AUDIOS[model_type]}
    ran = seen(config, "model.audio_tower", real_model(config), lambda tower: hear(tower, frames))
    assert ran == counted(config, audios=[frames])
    assert min(ran) > 0


@pytest.mark.parametrize(("model_type", "frames"), [("qwen2_5_omni_thinker", 41), ("qwen3_omni_moe_thinker", 351)])
def test_the_last_chunk_of_an_audio_attends_by_itself(model_type: str, frames: int) -> None:
    config = whole(model_type) | {"audio_config": AUDIOS[model_type]}
    weights, pairs = seen(config, "model.audio_tower", real_model(config), lambda tower: hear(tower, frames))
    ours, our_pairs = counted(config, audios=[frames])
    assert pairs == our_pairs
    assert weights > ours  # the real convolutions multiply the padding of the last chunk


WHISPER = AUDIO | {"max_source_positions": 12}  # chunks of 24 frames


def voxtral(chunks: int) -> Case:
    config = {"model_type": "voxtral", "text_config": LLAMA, "audio_token_id": IMAGE}
    config["audio_config"] = WHISPER | {"encoder_ffn_dim": 48}  # three tokens side by side
    return Case(config, [], {"input_features": torch.zeros(chunks, 12, 24)}, 4 * chunks)


def qwen2_audio(chunks: int) -> Case:
    config = {"model_type": "qwen2_audio", "text_config": TEXT | {"model_type": "qwen2"}, "audio_config": WHISPER}
    inputs = {
        "input_features": torch.zeros(chunks, 12, 24),
        "feature_attention_mask": torch.ones(chunks, 24, dtype=torch.long),
    }
    return Case(config | {"audio_token_index": IMAGE}, [], inputs, 6 * chunks)


@pytest.mark.parametrize("chunks", [1, 3])
@pytest.mark.parametrize("make", [voxtral, qwen2_audio], ids=lambda make: make.__name__)
def test_whole_model_with_audio_runs_the_flops_that_we_count(make: Callable[[int], Case], chunks: int) -> None:
    case = make(chunks)
    ran = run_whole(case)
    for audios in ([24] * chunks, [24 * chunks]):
        assert ran == counted(case.config, [case.tokens + 3], audios=audios)
    assert min(ran) > 0


def test_the_silence_behind_an_audio_counts_where_it_is_text() -> None:
    words, one, two, three = (FlopCounter(voxtral(1).config)([20], audios=audios) for audios in ([], [1], [25], [72]))
    assert two - words == 2 * (one - words)
    assert three - words == 3 * (one - words)
    halved, whole = (counted(qwen2_audio(1).config, audios=[frames]) for frames in (12, 24))
    assert (2 * halved[0], 4 * halved[1]) == whole


@pytest.mark.parametrize("frames", [100, 351, 500])
def test_whole_qwen3_asr_runs_the_flops_that_we_count(frames: int) -> None:
    text = TEXT | {"model_type": "qwen3"}
    config = {"model_type": "qwen3_asr", "text_config": text, "audio_config": AUDIOS["qwen3_omni_moe_thinker"]}
    config["audio_token_id"] = IMAGE
    filled = -(-frames // 100) * 100
    mask = (torch.arange(filled) < frames).long()[None]
    inputs = {"input_features": torch.zeros(1, 12, filled), "input_features_mask": mask}
    tokens = frames // 100 * 13 + -(-(frames % 100) // 8)
    weights, pairs = run_whole(Case(config, [], inputs, tokens))
    ours, our_pairs = counted(config, [tokens + 3], audios=[frames])
    assert pairs == our_pairs > 0
    assert weights == ours if frames == filled else weights > ours  # convolutions multiply the last chunk's padding


def test_a_file_of_the_first_release_of_qwen3_asr_reads_as_transformers_names_it() -> None:
    sizes = {"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "head_dim": 8, "vocab_size": 100}
    text, audio = sizes | {"num_key_value_heads": 2, "intermediate_size": 80}, AUDIOS["qwen3_omni_moe_thinker"]
    first = {
        "text_config": text | {"model_type": "qwen3_asr_text", "tie_word_embeddings": True},
        "audio_config": audio | {"model_type": "qwen3_asr_audio_encoder"},
    }
    ours = describe({"model_type": "qwen3_asr", "thinker_config": first})
    renamed = {"model_type": "qwen3_asr", "text_config": text | {"model_type": "qwen3"}, "audio_config": audio}
    real = real_model(renamed)
    assert set(ours.parameters()) == {(name, tuple(tensor.shape)) for name, tensor in real.named_parameters()}
    assert list(ours.parameters()) == list(describe(renamed).parameters())


def hear(tower: Any, frames: int) -> Any:
    return tower(torch.zeros(AUDIO["num_mel_bins"], frames), feature_lens=torch.tensor([frames]))


@pytest.mark.parametrize("model_type", TOWERS)
def test_images_add_up_and_a_batch_without_images_has_no_tower_work(model_type: str) -> None:
    counter = FlopCounter(whole(model_type))
    text = counter([100, 7])
    first, second = (counter([100, 7], images=[grid]) - text for grid in GRIDS)
    assert first > 0
    assert counter([100, 7], images=GRIDS) == text + first + second
    assert counter([], images=GRIDS) == first + second
    assert counter([100, 7], images=[]) == text


def test_a12_images_attend_within_themselves() -> None:
    """Two images of 1024 patches against one of 2048: the same linear work, half the pairs."""
    counter = FlopCounter("Qwen/Qwen3-VL-8B-Instruct", "exact")
    two, one = (counter.breakdown([], images=images).by_kind() for images in ([1024, 1024], [2048]))
    layers, width = 27, 1152
    assert two["attention"] == layers * 12 * width * 2_097_152
    assert one["attention"] == layers * 12 * width * 4_194_304
    assert {k: v for k, v in two.items() if k != "attention"} == {k: v for k, v in one.items() if k != "attention"}
    assert counter([50]) == counter([50], images=[])
    assert counter([50, 60], images=[1024]) == counter([50, 60]) + counter([], images=[1024])


def test_windows_need_the_grid() -> None:
    counter = FlopCounter("Qwen/Qwen2.5-VL-3B-Instruct")
    with pytest.raises(InvalidBatch, match="height, width"):
        counter([10], images=[1024])
    assert counter([10], images=[(1, 32, 32)]) > counter([10])


@pytest.mark.parametrize("images", [[-4], [(1, 2)], [(1, -2, 2)], ["a"], 5, [1.5], [(1, 2.5, 2)]], ids=str)
def test_bad_images_are_named(images: Any) -> None:
    with pytest.raises(InvalidBatch, match="images"):
        FlopCounter("Qwen/Qwen3-VL-8B-Instruct")([10], images=images)


def test_tokens_of_a_stream() -> None:
    halves = Stream("audio", every=2, pad=1)  # a padded convolution rounds up
    assert [halves.tokens(n) for n in (0, 1, 2, 5)] == [0, 1, 1, 3]
    chunked = Stream("audio", every=8, pad=7, chunk=100)  # 13 tokens of each 100 frames, 3 of the last 17
    assert [chunked.tokens(n) for n in (17, 100, 200, 217)] == [3, 13, 26, 29]
    assert Stream("audio", every=2, rows=64).tokens(10) == 5 * 64
    assert Stream("image", every=4, extra=1).tokens(64) == 17
    assert Stream("image", rows=0, extra=1).tokens(64) == 1


def test_what_never_runs_costs_nothing_and_has_parameters() -> None:
    layer = Module(up=Linear(8, 16), inner=Module(down=Linear(16, 8)).on(Stream("image")))
    tree = Module(runs=layer, idle=layer.never_run())
    assert tree.num_params() == 2 * 256
    assert FlopCounter(tree, phase="forward")([10], images=[3]) == 2 * (128 * 10 + 128 * 3)


def test_frames_that_are_pooled_leave_as_one() -> None:
    tree = Module(each=Module(up=Linear(8, 8)), pooled=Module(up=Linear(8, 8)).on(Stream("image", pooled=True)))
    counter = FlopCounter(tree.on(Stream("image")), phase="forward")
    assert counter([], images=[(5, 2, 3)]) == 2 * 64 * (5 * 6 + 6)


@pytest.mark.parametrize("model_type", ["qwen2_5_omni", "qwen3_omni_moe"])
def test_an_omni_model_counts_as_its_thinker(model_type: str) -> None:
    thinker = {key: value for key, value in whole(f"{model_type}_thinker").items() if key != "model_type"}
    omni, alone = {"model_type": model_type, "thinker_config": thinker}, whole(f"{model_type}_thinker")
    batch = {"seq_lens": [50], "images": [(1, 4, 4)], "audios": [300]}
    assert FlopCounter(omni)(**batch) == FlopCounter(alone)(**batch)
    assert list(describe(omni).parameters()) == list(describe(alone).parameters())


@pytest.mark.parametrize(
    ("fields", "error", "named"),
    [
        ({"text_config": {"model_type": "nonsense"}}, UnsupportedModel, "'nonsense'"),
        ({"vision_config": {"model_type": "dinov2"}}, UnsupportedModel, "'dinov2'"),
        ({"vision_config": {"model_type": "llama"}}, InvalidConfig, "vision_config: found a llama"),
        ({"text_config": {"model_type": "clip_vision_model"}}, InvalidConfig, "text_config: found a clip_vision_model"),
        ({"text_config": {"hidden_size": "x"}}, InvalidConfig, r"\(text_config\) config: hidden_size"),
        ({"vision_config": 3}, InvalidConfig, "vision_config: found 3"),
        ({"vision_feature_layer": -99}, InvalidConfig, "vision_feature_layer: found -99"),
    ],
)
def test_a_part_that_does_not_fit_is_named(fields: dict[str, Any], error: type[Exception], named: str) -> None:
    with pytest.raises(error, match=named):
        describe({"model_type": "llava", **fields})
