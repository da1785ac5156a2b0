"""Counting torch modules that have no config."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import flopcalc
from flopcalc import InvalidBatch, InvalidConfig, InvalidOption

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper  # noqa: E402

from flopcalc.integrations.torch import AttentionFlops, FlopCounter, describe  # noqa: E402


@pytest.fixture(autouse=True)
def on_meta():
    with torch.device("meta"):
        yield


class Attention(nn.Module):
    """4 heads of 8: 12 * 32 FLOPs a pair in a training step."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(32, 96, bias=False)
        self.out = nn.Linear(32, 32, bias=False)

    def attention_flops(self, seq_len: int) -> int:
        return 12 * 32 * seq_len * seq_len


class Block(nn.Module):
    def __init__(self, attention: nn.Module) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(32)
        self.attention = attention
        self.mlp = nn.Sequential(nn.Linear(32, 128), nn.GELU(), nn.Linear(128, 32))


class Model(nn.Module):
    def __init__(self, *blocks: nn.Module, tied: bool = False) -> None:
        super().__init__()
        self.embed = nn.Embedding(100, 32)
        self.blocks = nn.ModuleList(blocks)
        self.head = nn.Linear(32, 100, bias=False)
        if tied:
            self.head.weight = self.embed.weight


class Forwarding(nn.Module):
    """A wrapper that hands every attribute of its module on, as FSDP, compile and checkpointing do."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.inner = module

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("inner"), name)


# 32 (norm) + 32 * 96 + 32 * 32 + 2 * 32 * 128 + 128 + 32 (MLP with biases)
BLOCK = 32 + 3072 + 1024 + 8192 + 160
HEAD = 3200
PAIR = 12 * 32


def test_parameters_by_type_and_attention_by_its_own_word():
    counter = FlopCounter(Model(Block(Attention()), Block(Attention())))
    assert counter([10]) == 10 * 6 * (2 * BLOCK + HEAD) + 2 * PAIR * 100
    assert counter([10, 3]) == counter([10]) + counter([3])
    assert counter([]) == 0
    assert counter.flops_per_token(10) * 10 == counter([10])
    assert list(counter.per_document([10, 3, 0])) == [counter([10]), counter([3]), 0]
    assert counter.breakdown([10, 3]).total() == counter([10, 3])
    assert counter.breakdown([10]).by_module()["blocks.1.attention"] == 10 * 6 * 4096 + PAIR * 100
    assert counter.breakdown([10]).by_kind()["attention"] == 2 * PAIR * 100
    assert counter([300] * 300) == 300 * counter([300])


def test_a_tied_head_is_a_matrix_and_its_embedding_a_look_up():
    assert FlopCounter(Model(tied=True))([7]) == FlopCounter(Model())([7]) == 7 * 6 * HEAD
    assert dict(FlopCounter(Model(tied=True)).breakdown([1]).by_kind()) == {"head": 6 * HEAD}


def test_conventions_and_phases_are_those_of_every_counter():
    model = Model(Block(Attention()))
    assert FlopCounter(model, "exact")([10]) == 10 * 6 * (BLOCK - 32 - 160 + HEAD) + PAIR * 100
    assert FlopCounter(model, phase="forward")([10]) == FlopCounter(model)([10]) // 3


def test_a_module_equals_its_description():
    model = Model(Block(Attention()), Block(Attention()))
    names = [(name, tuple(parameter.shape)) for name, parameter in model.named_parameters()]
    assert list(describe(model).parameters()) == names


@pytest.mark.parametrize(
    "wrap",
    [
        Forwarding,
        lambda module: Forwarding(Forwarding(module)),
        lambda module: torch.compile(module, backend="eager"),
        checkpoint_wrapper,
    ],
    ids=["forwarding", "twice", "compile", "checkpoint"],
)
def test_a_wrapper_that_forwards_attributes_adds_nothing(wrap):
    plain = FlopCounter(Model(Block(Attention())))([9])
    assert FlopCounter(Model(Block(wrap(Attention()))))([9]) == plain
    assert FlopCounter(wrap(Model(Block(Attention()))))([9]) == plain
    assert hasattr(wrap(Attention()), "attention_flops")


def test_a_layer_that_stands_twice_in_the_tree_is_counted_once():
    block = Block(Attention())
    model = Model(block, block)
    model.alias = block.attention
    assert FlopCounter(model)([9]) == FlopCounter(Model(block))([9])


def test_the_protocol_can_be_checked_at_run_time():
    assert isinstance(Attention(), AttentionFlops)
    assert not isinstance(nn.Linear(1, 1), AttentionFlops)


# --- experts -----------------------------------------------------------------------------------------


class Fused(nn.Module):
    """8 experts in two stacked weights, with a bias; 2 a token."""

    def __init__(self, top_k: int | None = 2) -> None:
        super().__init__()
        self.w1 = nn.Parameter(torch.empty(8, 32, 24))
        self.w2 = nn.Parameter(torch.empty(8, 24, 32))
        self.bias1 = nn.Parameter(torch.empty(8, 24))
        self.router = nn.Parameter(torch.empty(8, 32))
        if top_k is not None:
            self.top_k = top_k


class Listed(nn.Module):
    def __init__(self, top_k: int | None = 2, widths: tuple[int, ...] = (5, 5, 5)) -> None:
        super().__init__()
        self.router = nn.Linear(32, len(widths), bias=False)
        if top_k is not None:
            self.router.top_k = top_k
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(32, w), nn.ReLU(), nn.Linear(w, 32)) for w in widths)
        self.shared_experts = nn.Linear(32, 32, bias=False)


FUSED = 2 * (32 * 24 + 24 * 32 + 24) + 8 * 32  # two experts, the whole router
LISTED = 2 * (32 * 5 + 5 + 5 * 32 + 32) + 3 * 32 + 32 * 32  # two of three, and the shared one


def test_experts_count_by_top_k_and_routers_in_full():
    assert FlopCounter(Fused())([10]) == 10 * 6 * FUSED
    assert FlopCounter(Listed())([10]) == 10 * 6 * LISTED
    assert FlopCounter(Fused(top_k=8))([1]) == 6 * (8 * (32 * 24 + 24 * 32 + 24) + 8 * 32)


def test_a_top_k_that_the_module_does_not_say_is_asked_for_and_can_be_given():
    with pytest.raises(InvalidConfig, match=r"w1: 8 experts.*top_k="):
        FlopCounter(Fused(top_k=None))
    with pytest.raises(InvalidConfig, match=r"0\.experts: 3 experts"):
        FlopCounter(nn.Sequential(Listed(top_k=None)))
    assert FlopCounter(Fused(top_k=None), top_k=2)([10]) == 10 * 6 * FUSED
    assert FlopCounter(nn.Sequential(Listed(top_k=None)), top_k={"0.experts": 2})([10]) == 10 * 6 * LISTED
    assert FlopCounter(nn.Sequential(Listed(top_k=1)), top_k={"*.experts": 2})([10]) == 10 * 6 * LISTED
    # stacked matrices that every token passes
    dense = {"w*": None, "bias1": None}
    assert FlopCounter(Fused(top_k=None), top_k=dense)([1]) == FlopCounter(Fused(top_k=8))([1])


def test_experts_that_contradict_are_named():
    with pytest.raises(InvalidConfig, match="found top-k 9, expected 1 to 8"):
        FlopCounter(Fused(top_k=9))
    contradicting = Fused()
    contradicting.num_experts_per_tok = 4
    with pytest.raises(InvalidConfig, match=r"\('num_experts_per_tok', 4\), \('top_k', 2\)"):
        FlopCounter(contradicting)
    with pytest.raises(InvalidConfig, match="different shapes"):
        FlopCounter(Listed(widths=(5, 6, 5)))


def test_a_transformers_moe_equals_its_config():
    transformers = pytest.importorskip("transformers")
    config = transformers.Qwen3MoeConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        num_experts=6,
        num_experts_per_tok=2,
        moe_intermediate_size=16,
        vocab_size=64,
    )
    model = transformers.AutoModelForCausalLM.from_config(config)
    with pytest.warns(UserWarning, match="Qwen3MoeAttention"):
        counted = FlopCounter(model)([11])
    assert counted == flopcalc.FlopCounter(config)([11]) - 2 * PAIR * 121


# --- faults ------------------------------------------------------------------------------------------


def test_attention_that_says_nothing_is_warned_about_and_a_speaking_one_is_not():
    with pytest.warns(UserWarning, match=r"blocks\.0\.attention \(MultiheadAttention\)"):
        FlopCounter(Model(Block(nn.MultiheadAttention(32, 4))))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        FlopCounter(Model(Block(Attention())))
        FlopCounter(nn.Linear(2, 2))

        class Speaking(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.inner = nn.MultiheadAttention(32, 4)

            def attention_flops(self, seq_len: int) -> int:
                return seq_len

        FlopCounter(Model(Block(Speaking())))


@pytest.mark.parametrize("said", [-1, 0.5, None, True])
def test_an_attention_that_says_no_whole_number_is_named(said):
    layer = Attention()
    layer.attention_flops = lambda seq_len: said
    with pytest.raises(InvalidOption, match=r"blocks\.0\.attention\.attention_flops\(9\)"):
        FlopCounter(Model(Block(layer)))([9])


def test_what_is_no_plain_weight_is_named():
    packed = nn.Linear(4, 4)
    packed.weight = nn.Parameter(torch.empty(8, 1, dtype=torch.uint8), requires_grad=False)
    for module in (packed, nn.LazyLinear(4)):
        with pytest.raises(InvalidConfig, match=r"weight: found .*meta device"):
            FlopCounter(module)
    with pytest.raises(InvalidBatch, match="seq_lens"):
        FlopCounter(nn.Linear(2, 2))([-1])
    with pytest.raises(InvalidBatch, match="images"):
        FlopCounter(nn.Linear(2, 2))([1], images=[4])
    with pytest.raises(InvalidBatch, match="seq_len"):
        FlopCounter(nn.Linear(2, 2)).flops_per_token(0)


def test_the_meter_takes_the_counter():
    meter = flopcalc.MfuMeter(FlopCounter(Model(Block(Attention()))), peak_flops=1e9)
    meter.add([10])
    assert meter.step(elapsed_seconds=1.0)["perf/model_flops"] == 10 * 6 * (BLOCK + HEAD) + PAIR * 100
    assert meter.explain()["convention"] == "standard"
