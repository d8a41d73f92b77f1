"""Tests of the `penstock` command, as people and programs call it.

The command is PENSTOCK_COMMAND, or build/release/bin/penstock, and its build folder PENSTOCK_BUILD, or the one it lies
in. Bad plugins are small C files compiled here.
"""

import json
import os
import pathlib
import shutil
import signal
import subprocess

import pytest
from long_runs import IS_LONG

ROOT = pathlib.Path(__file__).resolve().parents[2]
COMMAND = pathlib.Path(os.environ.get("PENSTOCK_COMMAND", ROOT / "build/release/bin/penstock")).resolve()
BUILD = pathlib.Path(os.environ.get("PENSTOCK_BUILD", COMMAND.parent.parent)).resolve()
PLUGINS = BUILD / "lib/penstock/plugins"
KINDS = ["compressor", "memory", "collective", "scheduler"]
NEW_KINDS = [*KINDS, "composite"]  # of `penstock new`


def penstock(*arguments, cwd=None, **environment):
    return subprocess.run(
        [str(COMMAND), *map(str, arguments)], cwd=cwd, capture_output=True, text=True, timeout=300,
        env={**os.environ, **environment}, check=False)


def findings_in(output):
    """The result and reason of each test of `penstock check --json`, by its name."""
    return {test["test"]: (test["result"], test["reason"]) for test in json.loads(output)["tests"]}


def findings(plugin):
    """Exit status, and what findings_in() gives."""
    ran = penstock("check", plugin, "--json")
    return ran.returncode, findings_in(ran.stdout)


# ---- plugins ----


def test_list_gives_objects_with_all_fields():
    ran = penstock("plugins", "list", "--json")
    assert ran.returncode == 0, ran.stderr
    plugins = json.loads(ran.stdout)
    assert {plugin["kind"] for plugin in plugins} == set(KINDS)
    for plugin in plugins:
        assert {"kind", "name", "version", "summary", "options", "path", "abi", "license", "source"} <= set(plugin)
        assert plugin["problem"] == ""
        for option in plugin["options"]:
            assert {"name", "type", "default", "range", "unit", "summary", "flags"} <= set(option)
    topk = next(plugin for plugin in plugins if (plugin["kind"], plugin["name"]) == ("compressor", "topk"))
    density = next(option for option in topk["options"] if option["name"] == "density")
    assert density["default"] == 0.01 and density["maximum"] == 1 and "open_minimum" in density["flags"]


def test_describe_prints_the_options():
    ran = penstock("plugins", "describe", "compressor/topk")
    assert ran.returncode == 0 and "density" in ran.stdout and "(0, 1]" in ran.stdout


def test_describe_of_an_unknown_name_tells_the_nearest():
    ran = penstock("plugins", "describe", "topkk")
    assert ran.returncode == 1 and 'did you mean "topk"' in ran.stderr


def test_matrix_tells_of_every_plugin_what_it_goes_with():
    plugins = json.loads(penstock("plugins", "list", "--json").stdout)
    count = {kind: sum(plugin["kind"] == kind for plugin in plugins) for kind in KINDS}
    pairs, ways, schedulers = (matrix["cells"] for matrix in json.loads(penstock("plugins", "matrix", "--json").stdout))
    assert len(pairs) == count["compressor"] * count["memory"]
    assert len(ways) == count["compressor"] * (4 + count["collective"])
    assert len(schedulers) == count["scheduler"] * 4
    verdict = {(cell["compressor"], cell["with"]): cell["verdict"] for cell in pairs + ways}
    assert verdict["topk", "residual"] == "ok" and verdict["topk", "none"] == "poor" and verdict["topk", "route split"] == "no"
    assert all((cell["note"] == "") == (cell["verdict"] == "ok") for cell in pairs + ways + schedulers)
    text = penstock("plugins", "matrix").stdout
    assert "topk" in text and "dear" in text and text.count("poor  runs, with a warning") == 1


def test_matrix_of_one_plugin_gives_the_reasons():
    ran = penstock("plugins", "matrix", "dear")
    assert ran.returncode == 0 and "cannot produce route" in ran.stdout
    ran = penstock("plugins", "matrix", "deer")
    assert ran.returncode == 1 and 'did you mean "dear"' in ran.stderr


# ---- config check ----


def test_every_configuration_of_the_repository_is_right():
    files = sorted((ROOT / "conf").glob("*.toml"))
    assert files
    ran = penstock("config", "check", *files)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.splitlines() == [f"ok {file}" for file in files]


BAD_CONFIGURATIONS = {
    "syntax": ("[scheme\n", ":1:"),
    "unknown key": ('[scheme]\ncompresor = "topk"\n', "compressor"),
    "out of range": ('[scheme]\ncompressor = "topk"\n[compressor.topk]\ndensity = 2.0\n', "density"),
    "wrong type": ('[scheme]\ncompressor = "topk"\n[compressor.topk]\ndensity = "much"\n', ":4:"),
    "unknown plugin": ('[scheme]\ncompressor = "topq"\n', "topk"),
    "nothing names it": ('[compressor.topk]\ndensity = 0.1\n', "nothing names [compressor.topk]"),
    "no fit": ('[scheme]\ncompressor = "powersgd"\nmemory = "residual"\nscheduler = "dear"\n', "route \"split\""),
    "no transport": ('[scheme]\ncollective = "oktopk"\ncompressor = "topk"\nmemory = "residual"\n', "needs a transport"),
}


@pytest.mark.parametrize("name", BAD_CONFIGURATIONS)
def test_a_bad_configuration_is_named_with_its_place(name, tmp_path):
    text, expected = BAD_CONFIGURATIONS[name]
    file = tmp_path / "bad.toml"
    file.write_text(text)
    ran = penstock("config", "check", ROOT / "conf/s-sgd.toml", file)
    assert ran.returncode == 1
    assert ran.stdout.splitlines()[0].startswith("ok ")
    assert f"{file}:" in ran.stdout and expected in ran.stdout
    (good, bad) = json.loads(penstock("config", "check", ROOT / "conf/s-sgd.toml", file, "--json").stdout)
    assert good["ok"] and not bad["ok"] and expected in bad["error"]


@pytest.mark.parametrize("words", [("check",), ("traffic",), ("check", "conf/s-sgd.toml")], ids=" ".join)
def test_an_empty_name_is_no_configuration(words):
    ran = penstock("config", *words, "", cwd=ROOT)
    assert ran.returncode == 2 and "a name is empty, expected the path of a TOML file" in ran.stderr, ran


# ---- check ----


# A compressor takes two seconds of a core, a plugin of another kind a fiftieth of that.
ONE_OF_EACH_FAMILY = ("none", "topk", "dgc", "gaussiank", "fp16", "qsgd", "signsgd", "powersgd", "sketch", "blocktopk")


def checked_plugins():
    """All built plugins; outside of long runs, of the compressors one of each family."""
    others = [file for kind in KINDS[1:] for file in sorted(PLUGINS.glob(f"{kind}-*.so"))]
    compressors = [PLUGINS / f"compressor-{name}.so" for name in ONE_OF_EACH_FAMILY]
    return others + (sorted(PLUGINS.glob("compressor-*.so")) if IS_LONG else compressors)


@pytest.mark.parametrize("plugin", checked_plugins(), ids=lambda path: path.stem)
def test_every_built_plugin_passes(plugin):
    ran = penstock("check", plugin)
    assert ran.returncode == 0, ran.stdout
    assert "0 of" in ran.stdout


# A compressor that sends every entry; macros make one mistake each.
BAD_PLUGIN = r"""
#include <penstock/plugin.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static const penstock_host* host;
static penstock_section_bound bounds[64];
static const penstock_section_bound* bound_pointers[64];
static penstock_round rounds[64];
static const penstock_round* round_pointers[64];
static penstock_status* create(const penstock_option_value* const* o, uint64_t n, void** instance) {
#ifdef CRASH_IN_CREATE
  *(volatile int*)8 = 1;
#endif
#ifdef HANG_IN_CREATE
  for (;;) sleep(1);
#endif
#ifdef EXIT_IN_CREATE
  _exit(0);
#endif
  *instance = &host;
  return NULL;
}
static void destroy(void* instance) {}
static penstock_status* describe(void* instance, penstock_compressor_traits* traits) {
  traits->dtypes = PENSTOCK_DTYPE_BIT(PENSTOCK_FLOAT32);
  traits->device_types = 1u << PENSTOCK_DEVICE_CPU;
#if defined(ALSO_ON_CUDA) || defined(LOSSY_ON_CUDA)
  traits->device_types |= 1u << PENSTOCK_DEVICE_CUDA;
#endif
  return NULL;
}
static penstock_status* plan(void* instance, uint32_t phase, uint32_t world, const penstock_item* const* items,
                             uint64_t n, penstock_compressor_need* const* needs) {
  for (uint64_t i = 0; i < n; ++i) {
    bounds[i].struct_size = sizeof bounds[i];
    bounds[i].capacity = items[i]->numel;
    bounds[i].role = PENSTOCK_ROLE_VALUES;
    bounds[i].dtype = PENSTOCK_FLOAT32;
    bounds[i].flags = PENSTOCK_SECTION_EXACT;
    bound_pointers[i] = &bounds[i];
    rounds[i].struct_size = sizeof rounds[i];
    rounds[i].sections = &bound_pointers[i];
    rounds[i].n_sections = 1;
    rounds[i].combine = PENSTOCK_COMBINE_SUM;
    rounds[i].result = PENSTOCK_RESULT_MEAN;
    round_pointers[i] = &rounds[i];
    needs[i]->rounds = &round_pointers[i];
    needs[i]->n_rounds = 1;
    needs[i]->period = 1;
    needs[i]->flags = PENSTOCK_NEED_LOSSLESS | PENSTOCK_NEED_LINEAR;
#ifdef LOSSY_ON_CUDA
    needs[i]->flags = PENSTOCK_NEED_LINEAR;
#endif
  }
  return NULL;
}
static penstock_status* encode(void* instance, const penstock_exec* exec, const penstock_step* step, uint32_t round,
                               const penstock_item* const* items, uint64_t n, penstock_payload* const* payloads) {
  for (uint64_t i = 0; i < n; ++i) {
    penstock_section* section = payloads[i]->sections[0];
    memcpy(section->data, items[i]->work.data, items[i]->numel * 4);
#ifdef WRITE_BEYOND
    ((float*)section->data)[section->capacity] = 1;
#endif
#ifndef LEAVE_WORK
    if (items[i]->flags & PENSTOCK_ITEM_KEEP) memset(items[i]->work.data, 0, items[i]->numel * 4);
#endif
    section->count = items[i]->numel;
    payloads[i]->kind = PENSTOCK_PAYLOAD_DENSE;
  }
  return NULL;
}
static penstock_status* decode(void* instance, const penstock_exec* exec, const penstock_step* step, uint32_t round,
                               const penstock_item* const* items, uint64_t n, const penstock_payload* const* payloads,
                               uint64_t n_ranks, uint32_t flags) {
  const penstock_str text = {"another count than planned", 26};
  for (uint64_t i = 0; i < n; ++i) {
    float* out = items[i]->out.data;
    memset(out, 0, items[i]->numel * 4);
    if (payloads[i]->kind == PENSTOCK_PAYLOAD_ABSENT) continue;
    if (payloads[i]->kind != PENSTOCK_PAYLOAD_DENSE || payloads[i]->sections[0]->count != items[i]->numel)
      return host->status_new(host->context, PENSTOCK_INVALID_PAYLOAD, text);
    memcpy(out, payloads[i]->sections[0]->data, items[i]->numel * 4);
  }
  return NULL;
}
static const penstock_compressor table = {sizeof table, create, destroy, describe, plan, encode, decode};
static const penstock_module module = {sizeof module, &table, NULL, 0};
static penstock_status* load(const penstock_host* given, const penstock_module** result) {
  host = given;
  *result = &module;
  return NULL;
}
#ifndef MAJOR
#define MAJOR PENSTOCK_ABI_MAJOR
#endif
const penstock_plugin_record penstock_plugin = {
    PENSTOCK_PLUGIN_MAGIC, sizeof penstock_plugin, MAJOR, PENSTOCK_ABI_MINOR, 0, PENSTOCK_KIND_COMPRESSOR,
    "compressor/bad", "0.1.0", "made by a test", "Apache-2.0", "", load};
#ifdef SECOND_SYMBOL
PENSTOCK_EXPORT int another_symbol = 1;
#endif
#ifdef CRASH_WHEN_LOADED
__attribute__((constructor)) static void die(void) { *(volatile int*)8 = 1; }
#endif
"""

# Mistake -> the test that finds it, and a word of its reason.
MISTAKES = {
    "": (None, ""),
    "SECOND_SYMBOL": ("one exported symbol", "another_symbol"),
    "MAJOR=7": ("abi", "7"),
    "CRASH_WHEN_LOADED": ("load", "crashed with signal 11"),
    "CRASH_IN_CREATE": ("create and destroy", "crashed with signal 11"),
    "EXIT_IN_CREATE": ("create and destroy", "ended the process"),
    "HANG_IN_CREATE": ("create and destroy", "not done after 20 s"),
    "WRITE_BEYOND": ("round trip", "wrote beyond"),
    "LEAVE_WORK": ("take-out", "lost 0"),
    "EXECUTABLE_STACK": ("no executable stack", "executable"),
}


def compile_plugin(folder, mistake):
    source = folder / "bad.c"
    source.write_text(BAD_PLUGIN)
    plugin = folder / "compressor-bad.so"
    stack = "execstack" if mistake == "EXECUTABLE_STACK" else "noexecstack"
    subprocess.run(
        ["cc", "-std=gnu11", "-shared", "-fPIC", "-fvisibility=hidden", "-w", f"-Wl,-z,{stack}",
         f"-I{ROOT / 'sdk/include'}", *([f"-D{mistake}"] if mistake else []), source, "-o", plugin], check=True)
    return plugin


@pytest.fixture(scope="module", autouse=True)
def hanging_check(tmp_path_factory):
    """The check of a plugin that hangs, begun before the other tests, because it waits for a limit of 20 s."""
    plugin = compile_plugin(tmp_path_factory.mktemp("hangs"), "HANG_IN_CREATE")
    words = [COMMAND, "check", plugin, "--json"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True) as check:
        yield check
        if check.poll() is None:
            os.killpg(check.pid, signal.SIGKILL)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_check_finds_the_mistake(mistake, tmp_path, hanging_check):
    if mistake == "HANG_IN_CREATE":
        tests = findings_in(hanging_check.communicate(timeout=300)[0])
        status = hanging_check.returncode
    else:
        status, tests = findings(compile_plugin(tmp_path, mistake))
    name, reason = MISTAKES[mistake]
    failed = {test: found for test, found in tests.items() if found[0] == "fail"}
    if name is None:
        assert status == 0 and not failed, failed
        return
    assert status == 1
    assert name in failed, tests
    assert reason in failed[name][1]


def test_a_plugin_that_ends_the_process_when_loaded_is_listed_and_described_as_not_usable(tmp_path):
    compile_plugin(tmp_path, "CRASH_WHEN_LOADED")
    for words in (("list",), ("describe", "compressor/bad")):
        ran = penstock("plugins", *words, PENSTOCK_PLUGIN_DIRECTORY=str(tmp_path))
        assert ran.returncode == 0, ran.stderr
        assert "crashed with signal 11" in ran.stdout, ran.stdout


def test_check_of_something_else_says_what_it_is_not(tmp_path):
    file = tmp_path / "compressor-text.so"
    file.write_text("no plugin at all")
    status, tests = findings(file)
    assert status == 1 and tests["elf"][0] == "fail"
    ran = penstock("check", tmp_path / "nothing.so")
    assert ran.returncode == 1 and "nothing.so" in ran.stderr


# ---- new ----


@pytest.mark.parametrize("kind", NEW_KINDS)
def test_a_new_plugin_builds_outside_the_tree_and_passes(kind, new_plugins):
    folder, ran = new_plugins[kind]
    kind = kind.replace("composite", "collective")
    for each in ran:
        assert each.returncode == 0, each.stdout + each.stderr
    texts = {file.name: file.read_text() for file in folder.iterdir() if file.is_file()}
    assert set(texts) == {"my-own.cpp", "my-own_test.cpp", "CMakeLists.txt", "README.md", "my-own.toml"}
    assert not any("@" in text for text in texts.values())
    assert f"my-own_{kind}_test" in ran[-1].stdout
    checked = penstock("check", folder / f"build/plugins/{kind}-my-own.so")
    assert checked.returncode == 0, checked.stdout
    config = penstock("config", "check", folder / "my-own.toml")
    assert config.returncode == 0, config.stdout


def test_new_refuses_bad_names_unknown_kinds_and_existing_folders(tmp_path):
    for arguments, expected in [(("compressor", "Bad Name"), "Bad Name"), (("compresor", "mine"), "compresor"),
                                (("compressor", "../mine"), "../mine")]:
        ran = penstock("new", *arguments, "--directory", tmp_path)
        assert ran.returncode == 1 and expected in ran.stderr
    ran = penstock("new", "compressor", "topk", "--directory", tmp_path)
    assert ran.returncode == 1 and "compressor/topk belongs to a plugin that comes with Penstock" in ran.stderr
    assert not (tmp_path / "topk").exists()
    (tmp_path / "mine").mkdir()
    ran = penstock("new", "compressor", "mine", "--directory", tmp_path)
    assert ran.returncode == 1 and "exists already" in ran.stderr
    assert list((tmp_path / "mine").iterdir()) == []


@pytest.mark.parametrize("plugin", ["compressor topk", "memory dgc", "collective nccl", "composite oktopk", "scheduler wfbp"])
def test_names_of_shipped_plugins_are_refused_where_none_is_installed_beside_the_command(plugin, tmp_path):
    command = tmp_path / "bin/penstock"
    command.parent.mkdir()
    shutil.copy(COMMAND, command)
    ran = subprocess.run([command, "new", *plugin.split(), "--directory", tmp_path], capture_output=True, text=True, check=False)
    kind, name = plugin.replace("composite", "collective").split()
    assert ran.returncode == 1 and f"the id {kind}/{name} belongs to a plugin that comes with Penstock" in ran.stderr, ran.stderr
    assert not (tmp_path / name).exists()


needs_mpirun = pytest.mark.skipif(shutil.which("mpirun") is None, reason="mpirun is not installed")


# ---- help ----


@pytest.mark.parametrize("arguments", [
    (), ("run",), ("plugins",), ("plugins", "list"), ("plugins", "describe"), ("plugins", "matrix"), ("config",),
    ("config", "check"), ("check",), ("new",), ("doctor",)], ids=" ".join)
def test_help_has_an_example(arguments):
    ran = penstock(*arguments, "--help")
    assert ran.returncode == 0 and "Example: penstock" in ran.stdout


def test_version_names_product_and_abi():
    ran = penstock("--version")
    minor = (ROOT / "sdk/include/penstock/base.h").read_text().split("#define PENSTOCK_ABI_MINOR ")[1].split()[0]
    assert ran.returncode == 0 and ran.stdout.startswith("penstock 0.") and f"ABI 0.{minor})" in ran.stdout


def test_a_wrong_call_has_a_status_of_its_own():
    assert penstock("plugin").returncode == 2
