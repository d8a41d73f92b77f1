"""Every command and every code block of the pages works as printed.

    sh       run line by line by bash, in a new shell without the caller's variables, in a folder that looks like the checkout
    python   run on two ranks by `penstock run`, and also by torchrun if the block makes a process group of torch; by the warm
             python (tests/support)
    toml     compared with the plugins by `penstock config check`
    cpp      compiled against the SDK's headers
    text     a drawing, which is not run

A block of any other language, or without a language, fails, so that every block is run. Blocks that need code around
them have a name (a comment `<!-- block: NAME -->` in front) and an entry in CONTEXT.
"""

from __future__ import annotations

import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import tomllib

import pytest
import warm_python
from page import ROOT, all_blocks, commands_in_text

BUILD = ROOT / "build/release"
PENSTOCK = BUILD / "bin/penstock"
LANGUAGES = {"sh", "python", "toml", "cpp", "cmake", "text"}  # cmake: tests/contract and outside_libtorch build such projects

# The code that a reader of the page has before and after a block. `{block}` stands for the block.
CONTEXT = {
    "an-import": "{block}\nhvd.init()\nprint(hvd.size())\n",
    "clipping": """\
import torch
import penstock.torch as hvd
hvd.init(config="conf/topk-residual.toml")
model = torch.nn.Linear(10, 2)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), named_parameters=model.named_parameters())
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
for _ in range(3):
    optimizer.zero_grad()
    loss = model(torch.randn(32, 10)).square().mean()
{indented}
""",
    "loss-scaling": """\
import torch
import penstock.torch as hvd
hvd.init(config="conf/topk-residual.toml")
model = torch.nn.Linear(10, 2)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), named_parameters=model.named_parameters())
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
scaler = torch.amp.GradScaler("cpu")
for _ in range(3):
    optimizer.zero_grad()
    loss = model(torch.randn(32, 10)).square().mean()
{indented}
""",
    "saving": """\
import torch
import penstock.torch as hvd
hvd.init(config="conf/topk-residual.toml")
model = torch.nn.Linear(10, 2)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), named_parameters=model.named_parameters())
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
model(torch.randn(32, 10)).square().mean().backward()
optimizer.step()
{block}
""",
}

CONTEXT["loading-shards"] = CONTEXT["saving"].replace("{block}", """\
saved = {**optimizer.state_dict(), **optimizer.compression_state_dict()}
torch.save({"optimizer": saved}, f"checkpoint-{hvd.rank()}.pt")
hvd.barrier()
{block}""")

_UNDER_DDP = """\
import torch
import torch.distributed as dist
import penstock.torch as hvd
from penstock.torch import PenstockState, ddp_hook
dist.init_process_group("gloo")
hvd.init()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 8))
state = PenstockState("conf/topk-residual.toml")
model.register_comm_hook(state, ddp_hook)
model(torch.randn(32, 64)).square().mean().backward()
"""
CONTEXT["loading-shards-under-ddp"] = _UNDER_DDP + """\
torch.save({"compression": state.state_dict()}, f"checkpoint-{hvd.rank()}.pt")
dist.barrier()
{block}"""
CONTEXT["saving-with-dcp"] = _UNDER_DDP + """\
before = state.state_dict()["penstock"]
{block}
loaded[own].seek(0)
assert torch.equal(torch.load(loaded[own])["penstock"], before) and before.numel() > 1000
assert torch.equal(state.state_dict()["penstock"], before)
"""

_APART = """\
import torch
import penstock.torch as hvd
hvd.init()
model = torch.nn.Sequential(*[torch.nn.Linear(8, 8) for _ in range(4)])
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
inner = torch.optim.AdamW(model.parameters())
{block}
for _ in range(40):
    optimizer.zero_grad()
    model(torch.randn(4, 8)).square().mean().backward()
    optimizer.step()
"""
CONTEXT["steps-apart-streaming"] = _APART
CONTEXT["steps-apart-saving"] = _APART.replace("{block}", "optimizer = hvd.LocalSteps(inner, every=30)") + "{block}"
CONTEXT["steps-apart-shards"] = CONTEXT["steps-apart-saving"].replace("{block}", """\
saved = {**optimizer.state_dict(), **optimizer.compression_state_dict()}
torch.save({"model": model.state_dict(), "optimizer": saved}, f"checkpoint-{hvd.rank()}.pt")
hvd.barrier()
{block}""")

# The recipe, and a training of two steps that fails where the hook was not registered.
CONTEXT["lightning"] = """\
import torch
import lightning
from penstock.torch import PenstockState, ddp_hook
{block}
class Net(lightning.pytorch.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(64, 8)
    def training_step(self, batch, index):
        return self.layer(batch[0]).square().mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(64, 64)), batch_size=16)
lightning.pytorch.Trainer(accelerator="cpu", devices=2, strategy="ddp", max_epochs=1, callbacks=[Compress()], logger=False,
                          enable_checkpointing=False, enable_progress_bar=False).fit(Net(), data)
import penstock.torch as hvd
assert hvd.counters()["steps"] >= 1 and hvd.size() == 2
"""
CONTEXT["hugging-face"] = """\
import torch
import transformers
from penstock.torch import PenstockState, ddp_hook
{block}
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(64, 8)
    def forward(self, x):
        return {"loss": self.layer(x).square().mean()}
arguments = transformers.TrainingArguments(output_dir="trained", max_steps=3, use_cpu=True, report_to=[], save_strategy="no",
                                           remove_unused_columns=False, per_device_train_batch_size=4)
trainer = transformers.Trainer(Net(), arguments, train_dataset=[{"x": torch.randn(64)} for _ in range(64)])
trainer.add_callback(Compress(trainer))
trainer.train()
import penstock.torch as hvd
assert hvd.counters()["steps"] >= 1 and hvd.size() == 2
"""
# Packages that a recipe needs. If a package is not installed, the recipe is skipped.
NEEDS = {"lightning": "lightning", "hugging-face": "transformers"}

# Commands that run tests themselves, or for hours. Here only their arguments are tested.
LONG = ("tools/quickstart", "tools/test", "tools/setup", "tools/mutate", "tools/nightly", "tools/gpu-check", "tools/bench", "tools/wheel")

SHELLS = [block for block in all_blocks() if block.language == "sh"]
PYTHONS = [block for block in all_blocks() if block.language == "python"]
TOMLS = [block for block in all_blocks() if block.language == "toml"]
# A block with the name `program` is a complete program. ctest's outside_libtorch builds and runs it.
CPPS = [block for block in all_blocks() if block.language == "cpp" and block.name not in ("program", "recipes")]  # outside_libtorch builds these


def clean_environment(home: pathlib.Path) -> dict[str, str]:
    """The environment of a new shell, without the caller's variables."""
    return {"HOME": str(home), "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """The folder of the template beside an installed SDK. The lines of its README are run here, with the command on the PATH."""
    home = tmp_path_factory.mktemp("template")
    subprocess.run(["cmake", "--install", BUILD, "--component", "sdk", "--prefix", home / "penstock-sdk"], check=True,
                   capture_output=True)
    shutil.copytree(ROOT / "sdk/template", home / "template")
    return home / "template"


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A folder with the entries of the checkout, in which the commands of a page may leave files."""
    folder = tmp_path_factory.mktemp("checkout")
    for entry in ROOT.iterdir():
        if entry.name not in {".git", ".pytest_cache"}:
            (folder / entry.name).symlink_to(entry)
    return folder


def run(command, where, timeout=600, **more):
    return subprocess.run(command, cwd=where, env={**clean_environment(where), **more}, capture_output=True, text=True,
                          timeout=timeout, stdin=subprocess.DEVNULL, check=False)


def test_every_block_has_a_language_that_is_tested():
    odd = [f"{block.id}: {block.language or 'no language'}" for block in all_blocks() if block.language not in LANGUAGES]
    assert not odd, odd


def test_every_named_block_has_its_context_and_every_context_its_block():
    names = {block.name for block in all_blocks() if block.language == "python" and block.name}
    assert names == set(CONTEXT)


def lines_of(block):
    """The commands of a block, without the words after ` #`."""
    joined = block.text.replace("\\\n", " ")
    return [re.sub(r"\s+#.*$", "", line).strip() for line in joined.splitlines() if line.strip() and not line.startswith("#")]


def names_the_wheel_that_would_be_made(command):
    """`pip install penstock-...whl`: tools/wheel runs it. Here the name must have this version and the tag of
    docs/install.md."""
    version = re.search(r"project\(Penstock VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
    wheel, = re.findall(r"penstock-\S+\.whl", command)
    return wheel.startswith(f"penstock-{version}-py3-none-") and wheel in (ROOT / "docs/install.md").read_text()


def is_long(command):
    program = command.split()[0]
    return program in LONG and not ("--task digits" in command or "--help" in command)


def takes_its_arguments(command):
    """Checks that the --help of a long command has each of its flags."""
    program, *words = command.split()
    sub = words[:1] if words and not words[0].startswith("-") else []
    helped = run([str(ROOT / program), *sub, "--help"], ROOT)
    if helped.returncode != 0:
        return f"{program} {' '.join(sub)} --help: {helped.stderr or helped.stdout}"
    for word in words:
        flag = word.split("=")[0]
        if flag.startswith("--") and flag not in helped.stdout:
            return f"{program} {' '.join(sub)} --help does not know {flag}"
    return ""


def write_scripts(block, where):
    """Writes the scripts that commands name and that do not exist, from the page's own block ("with this in
    train.py")."""
    own = [other for other in PYTHONS if other.page == block.page and not other.name]
    for name in re.findall(r"[\w/]+\.py", block.text):
        if own and not (where / name).exists():
            (where / name).write_text(own[0].text)


@pytest.mark.parametrize("block", SHELLS, ids=lambda block: block.id)
def test_a_block_of_commands_runs_as_it_stands(block, checkout, template):
    where, more = checkout, {}
    if block.name == "in-the-template":
        where = template
        more = {"HOME": str(template.parent), "PATH": f"{BUILD}/bin:{clean_environment(template)['PATH']}"}
    if block.name == "in-the-environment":
        more = {"PATH": f"{ROOT}/.venv/bin:{clean_environment(where)['PATH']}"}
    script = []
    for command in lines_of(block):
        if command.startswith("pip install penstock-"):
            assert names_the_wheel_that_would_be_made(command), command
        elif is_long(command):
            assert takes_its_arguments(command) == ""
        else:
            script.append(command)
    if not script:
        return
    write_scripts(block, where)
    ran = run(["bash", "-euo", "pipefail", "-c", "\n".join(script)], where, timeout=1500, **more)
    assert ran.returncode == 0, f"{block.id}\n{ran.stdout}\n{ran.stderr}"


LAUNCHERS = {
    "penstock-run": lambda python: [str(PENSTOCK), "run", "-np", "2", "--", python],
    "torchrun": lambda python: [python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"],
}


def launchers_of(block):
    """Both launchers for a block that makes a process group of torch, as its page says."""
    return LAUNCHERS if "init_process_group" in CONTEXT.get(block.name, "{block}").replace("{block}", block.text) else ["penstock-run"]


@pytest.mark.parametrize(("block", "launcher"), [(block, launcher) for block in PYTHONS for launcher in launchers_of(block)],
                         ids=lambda value: value if isinstance(value, str) else value.id)
def test_a_python_block_runs_on_two_ranks(block, launcher, checkout, tmp_path):
    if block.name in NEEDS and importlib.util.find_spec(NEEDS[block.name]) is None:
        pytest.skip(f"{NEEDS[block.name]} is not installed here")
    indented = "".join(f"    {line}\n" for line in block.text.splitlines())
    program = CONTEXT.get(block.name, "{block}").replace("{block}", block.text).replace("{indented}", indented)
    script = tmp_path / "script.py"
    script.write_text(program)
    command = [*LAUNCHERS[launcher](warm_python.executable()), str(script)]
    ran = run(command, checkout, OMP_NUM_THREADS="1", **warm_python.with_children())
    assert ran.returncode == 0, f"{block.id}\n{program}\n{ran.stdout}\n{ran.stderr}"


@pytest.mark.parametrize("block", TOMLS, ids=lambda block: block.id)
def test_a_toml_block_fits_the_plugins(block, tmp_path):
    content = tomllib.loads(block.text)
    compressor = content.get("scheme", {}).get("compressor")
    if compressor in {"mine", "template"}:
        # tools/penstock/mine_test.py and tests/contract make this plugin and train with it. Here another plugin takes its place.
        text = block.text.replace(f'"{compressor}"', '"topk"').replace("[compressor.template]\nstride = 2\n", "")
    else:
        text = block.text
    if "scheme" not in content:
        # A table alone, so a scheme must name its instance.
        (kind, instances), = [(kind, content[kind]) for kind in content if kind not in {"runtime", "rule", "switch"}]
        text = f'[scheme]\n{kind} = "{next(iter(instances))}"\n' + text
    (tmp_path / "build/plugins").mkdir(parents=True)
    file = tmp_path / "block.toml"
    file.write_text(text)
    ran = run([str(PENSTOCK), "config", "check", str(file)], tmp_path)
    assert ran.returncode == 0, f"{block.id}\n{ran.stdout}{ran.stderr}"


@pytest.mark.parametrize("block", CPPS, ids=lambda block: block.id)
def test_a_cpp_block_compiles_against_the_sdk(block, tmp_path):
    source = tmp_path / "block.cpp"
    source.write_text(block.text)
    compiler = shutil.which(os.environ.get("CXX", "c++"))
    ran = run([compiler, "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", f"-I{ROOT}/sdk/include", f"-I{ROOT}/sdk", str(source)],
              tmp_path)
    assert ran.returncode == 0, f"{block.id}\n{ran.stderr}"


# ---- Commands in running text ----


def help_of(words):
    """The help of the longest chain of sub-commands at the beginning of `words`, and the other words."""
    chain = []
    while words and re.fullmatch(r"[a-z][a-z-]*", words[0]):
        ran = run([str(PENSTOCK), *chain, words[0], "--help"], ROOT)
        if ran.returncode != 0:
            break
        chain.append(words.pop(0))
    return chain, run([str(PENSTOCK), *chain, "--help"], ROOT).stdout, words


@pytest.mark.parametrize("command", sorted({command for _, command in commands_in_text()}))
def test_a_command_in_the_text_is_there_with_its_flags(command):
    words = command.split()
    if words[0] == "torchrun":
        from torch.distributed.run import get_args_parser

        get_args_parser().parse_args(words[1:])
        return
    if words[0].startswith("tools/"):
        path = words[0].rstrip("/")
        assert (ROOT / path).exists(), f"there is no {path}"
        flagged = any(word.startswith("--") for word in words)
        assert not flagged or takes_its_arguments(command) == "", takes_its_arguments(command)
        return
    chain, text, rest = help_of(words[1:])
    assert chain, f"penstock has no sub-command {words[1]}"
    known = re.findall(r"(?<![\w-])--?[a-z][a-z-]*", text)
    before_dashes = rest[:rest.index("--")] if "--" in rest else rest
    for word in before_dashes:
        if word.startswith("-"):
            assert word.split("=")[0] in known, f"penstock {' '.join(chain)} --help does not know {word}"
