"""Which name a runtime reports for the device of this process. No accelerator is needed: each
library is a fake with the functions that the probe calls."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

import flopcalc
from flopcalc import detection, hardware
from flopcalc.errors import UnknownDevice


@pytest.fixture(autouse=True)
def bare_host(monkeypatch):
    """A Linux host without any accelerator, library or variable that a probe looks at."""
    for variable in ("FLOPCALC_PEAK_FLOPS", "CUDA_VISIBLE_DEVICES", "TPU_ACCELERATOR_TYPE"):
        monkeypatch.delenv(variable, raising=False)
    for module in ("torch", "jax"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    for module in ("pynvml", "amdsmi"):
        monkeypatch.setitem(sys.modules, module, None)  # importing it fails
    monkeypatch.setattr(detection, "find_spec", lambda name: None)
    monkeypatch.setattr(detection.platform, "system", lambda: "Linux")
    monkeypatch.setattr(hardware, "_registered", {})
    monkeypatch.setattr(hardware, "_warned", set())


def fake_torch(monkeypatch, *, load=True, **names):
    """A torch whose backends (`cuda=["NVIDIA L4"]`) report these names; the first is the current one."""

    class Device(str):
        pass

    def backend(reported):
        return SimpleNamespace(
            is_available=lambda: bool(reported), get_device_name=lambda index=None: reported[index or 0]
        )

    torch = SimpleNamespace(device=Device, **{kind: backend(reported) for kind, reported in names.items()})
    if load:
        monkeypatch.setitem(sys.modules, "torch", torch)
    return torch


class FakeNvml:
    """A host's cards: each a name, or a list of the names of its MIG slices."""

    class NVMLError(Exception):
        pass

    def __init__(self, *cards):
        self.cards, self.running = cards, False

    def nvmlInit(self):
        self.running = True

    def nvmlShutdown(self):
        self.running = False

    def nvmlDeviceGetCount(self):
        assert self.running
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index):
        return self.cards[index]

    def nvmlDeviceGetHandleByUUID(self, uuid):
        return {"GPU-1": "NVIDIA L40S", "MIG-2": "NVIDIA A30 MIG 2g.12gb"}[uuid]

    def nvmlDeviceGetName(self, handle):
        return handle

    def nvmlDeviceGetMigMode(self, card):
        if card == "NVIDIA L4":
            raise self.NVMLError("not supported")
        return [isinstance(card, list), isinstance(card, list)]

    def nvmlDeviceGetMaxMigDeviceCount(self, card):
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, card, place):
        if place >= len(card):
            raise self.NVMLError("not found")
        return card[place]


def fake_nvml(monkeypatch, *cards):
    nvml = FakeNvml(*cards)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    return nvml


# --- torch ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "name", "tflops"),
    [
        ("cuda", "NVIDIA H100 80GB HBM3", 989.5),
        ("cuda", "AMD Instinct MI300X", 1307.4),  # ROCm
        ("xpu", "Intel(R) Data Center GPU Max 1550", 419.4),
        ("npu", "Ascend910B2", 353.9),
        ("hpu", "GAUDI2", 432),
    ],
)
def test_a_loaded_torch_names_its_current_device(monkeypatch, kind, name, tflops):
    fake_torch(monkeypatch, **{kind: [name]})
    assert detection.detect() == (name,)
    assert flopcalc.peak_flops() == tflops * 10**12


def test_a_loaded_torch_comes_before_what_the_host_has(monkeypatch):
    fake_torch(monkeypatch, cuda=["NVIDIA A100-SXM4-40GB MIG 1g.5gb"])
    fake_nvml(monkeypatch, "NVIDIA A100-SXM4-40GB", "NVIDIA L4")
    assert detection.detect() == ("NVIDIA A100-SXM4-40GB MIG 1g.5gb",)


def test_a_loaded_torch_without_an_accelerator_leaves_it_to_the_host(monkeypatch):
    fake_torch(monkeypatch, cuda=[])
    fake_nvml(monkeypatch, "NVIDIA L4")
    assert detection.detect() == ("NVIDIA L4",)


def test_torch_is_imported_only_where_nothing_else_knows(monkeypatch):
    imported = []

    def import_module(name):
        imported.append(name)
        if name == "torch" and "torch" not in sys.modules:
            fake_torch(monkeypatch, xpu=["Intel(R) Data Center GPU Max 1100"])
        if sys.modules.get(name) is None:
            raise ImportError(name)
        return sys.modules[name]

    monkeypatch.setattr(detection, "import_module", import_module)
    monkeypatch.setattr(detection, "find_spec", lambda name: object())
    fake_nvml(monkeypatch, "NVIDIA L4")
    assert detection.detect() == ("NVIDIA L4",)
    assert "torch" not in imported
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert detection.detect() == ("Intel(R) Data Center GPU Max 1100",)


def test_a_torch_device_or_its_string_is_what_its_runtime_calls_it(monkeypatch):
    torch = fake_torch(monkeypatch, cuda=["NVIDIA L4", "NVIDIA L40S"], npu=["Ascend910B3"])
    assert detection.device_names("cuda") == ("NVIDIA L4",)
    assert detection.device_names("cuda:1") == ("NVIDIA L40S",)
    assert detection.device_names(torch.device("cuda:1")) == ("NVIDIA L40S",)
    assert detection.device_names("npu:0") == ("Ascend910B3",)
    assert flopcalc.peak_flops("cuda:1") == 362.05e12


def test_a_torch_device_that_is_not_there_is_none_with_a_warning_that_quotes_it(monkeypatch):
    fake_torch(monkeypatch, cuda=[])
    with pytest.warns(UserWarning, match="'cuda:3'"):
        assert flopcalc.peak_flops("cuda:3") is None


@pytest.mark.parametrize("device", [0, 1.5, ["NVIDIA L4"], object()])
def test_anything_else_is_no_device(device):
    with pytest.raises(UnknownDevice, match=r"expected a name, a torch\.device or None"):
        flopcalc.peak_flops(device)


# --- without torch -------------------------------------------------------------------------------


def test_nvml_names_the_cards_of_the_host_once(monkeypatch):
    nvml = fake_nvml(monkeypatch, "NVIDIA H200", b"NVIDIA H200", "NVIDIA H200")
    assert detection.detect() == ("NVIDIA H200",)
    assert not nvml.running


def test_mixed_cards_are_all_named_and_have_no_common_peak(monkeypatch):
    fake_nvml(monkeypatch, "NVIDIA L4", "NVIDIA L40S")
    assert detection.detect() == ("NVIDIA L4", "NVIDIA L40S")
    with pytest.raises(UnknownDevice, match=r"NVIDIA L4 \(121 TFLOP/s\), NVIDIA L40S \(362.05 TFLOP/s\)"):
        flopcalc.peak_flops()


def test_a_card_that_is_cut_is_its_slices_never_the_whole(monkeypatch):
    fake_nvml(monkeypatch, ["NVIDIA A30 MIG 1g.6gb", "NVIDIA A30 MIG 1g.6gb"])
    assert detection.detect() == ("NVIDIA A30 MIG 1g.6gb",)
    assert flopcalc.peak_flops() == 41.2e12
    fake_nvml(monkeypatch, [])
    assert detection.detect() == ("cpu",)


@pytest.mark.parametrize(
    ("visible", "names"),
    [
        ("GPU-1", ("NVIDIA L40S",)),
        ("MIG-2,GPU-1", ("NVIDIA A30 MIG 2g.12gb",)),
        ("0,1", ("NVIDIA L4",)),
        ("", ("cpu",)),
        ("-1", ("cpu",)),
    ],
)
def test_nvml_sees_what_the_process_may_see(monkeypatch, visible, names):
    fake_nvml(monkeypatch, "NVIDIA L4")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert detection.detect() == names


def test_the_fake_nvml_has_the_functions_of_the_real_one():
    code = "import pynvml; print(*dir(pynvml))"
    real = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    if real.returncode:
        pytest.skip("nvidia-ml-py is not installed")
    assert {name for name in dir(FakeNvml) if name.startswith(("nvml", "NVML"))} <= set(real.stdout.split())


def test_amd_smi_names_the_cards_of_the_host(monkeypatch):
    running = []
    amdsmi = SimpleNamespace(
        amdsmi_init=lambda: running.append(True),
        amdsmi_shut_down=lambda: running.clear(),
        amdsmi_get_processor_handles=lambda: ["AMD Instinct MI325X", "AMD Instinct MI325X"],
        amdsmi_get_gpu_asic_info=lambda handle: {"market_name": handle},
    )
    monkeypatch.setitem(sys.modules, "amdsmi", amdsmi)
    assert detection.detect() == ("AMD Instinct MI325X",)
    assert not running


@pytest.mark.parametrize(
    ("kind", "tflops"), [("v5litepod-16", 197), ("v4-8", 275), ("v6e-8", 918), ("tpu7x-8", 1153.5)]
)
def test_a_tpu_host_says_what_it_is(monkeypatch, kind, tflops):
    monkeypatch.setenv("TPU_ACCELERATOR_TYPE", kind)
    assert detection.detect() == (kind,)
    assert detection.device_names("xla:0") == (kind,)
    assert flopcalc.peak_flops() == tflops * 10**12


def test_a_loaded_jax_names_its_devices_but_not_the_cpu(monkeypatch):
    cpu = SimpleNamespace(platform="cpu", device_kind="cpu")
    tpu = SimpleNamespace(platform="tpu", device_kind="TPU v5 lite")
    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace(local_devices=lambda: [tpu, tpu, cpu]))
    assert detection.detect() == ("TPU v5 lite",)
    assert detection.device_names("xla") == ("TPU v5 lite",)
    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace(local_devices=lambda: [cpu]))
    assert detection.detect() == ("cpu",)


def test_a_mac_is_named_by_its_chip(monkeypatch):
    monkeypatch.setattr(detection.platform, "system", lambda: "Darwin")
    monkeypatch.setattr(detection.platform, "machine", lambda: "arm64")
    answer = SimpleNamespace(stdout="Apple M3 Ultra\n")
    monkeypatch.setattr(detection.subprocess, "run", lambda command, **kwargs: answer)
    assert detection.detect() == ("Apple M3 Ultra",)
    assert detection.device_names("mps") == detection.device_names("mps:0") == ("Apple M3 Ultra",)
    assert flopcalc.peak_flops("mps", "fp16") == 28.6e12


def test_a_broken_driver_leaves_it_to_the_next_probe(monkeypatch):
    def broken(*args):
        raise RuntimeError("driver/library version mismatch")

    torch = fake_torch(monkeypatch, cuda=["NVIDIA L4"])
    torch.cuda.get_device_name = broken
    nvml = fake_nvml(monkeypatch, "NVIDIA L4")
    nvml.nvmlDeviceGetName = broken
    monkeypatch.setenv("TPU_ACCELERATOR_TYPE", "v4-8")
    assert detection.detect() == ("v4-8",)
    assert not nvml.running


def test_a_host_without_an_accelerator_has_no_peak_and_one_warning_says_why():
    assert detection.detect() == ("cpu",)
    with pytest.warns(UserWarning, match="'cpu': there is no accelerator here") as caught:
        assert flopcalc.peak_flops() is None
        assert flopcalc.peak_flops(dtype="fp8") is None
    assert len(caught) == 1
