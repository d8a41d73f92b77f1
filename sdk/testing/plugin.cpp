// Loading plugins for tests; see plugin.hpp.
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <stdexcept>
#include <testing/plugin.hpp>

namespace penstock::test {
namespace {

struct HeapStatus {
  uint32_t code;
  std::string message;
};

std::atomic<int64_t> n_live{0};
std::string chosen_path;
const penstock_workers* chosen_workers = nullptr;
void (*call_listener)(const std::string&) = nullptr;

std::string text_of(penstock_str text) {
  return std::string(text.data ? text.data : "", text.size);
}
penstock_str str_of(const std::string& text) {
  return {text.data(), text.size()};
}

penstock_status* status_new(void*, uint32_t code, penstock_str message) {
  ++n_live;
  return reinterpret_cast<penstock_status*>(new HeapStatus{code, text_of(message)});
}
const HeapStatus* heap(const penstock_status* status) {
  return reinterpret_cast<const HeapStatus*>(status);
}
uint32_t status_code(void*, const penstock_status* status) {
  return status == nullptr ? static_cast<uint32_t>(PENSTOCK_OK) : heap(status)->code;
}
penstock_str status_message(void*, const penstock_status* status) {
  return status == nullptr ? penstock_str{nullptr, 0} : str_of(heap(status)->message);
}
void status_free(void*, penstock_status* status) {
  if (status == nullptr) return;
  --n_live;
  delete heap(status);
}
void log(void*, uint32_t, penstock_str, penstock_str) {}
penstock_str code_path(void*, penstock_str) {
  return str_of(chosen_path);
}
const void* extension(void*, penstock_str id) {
  return text_of(id) == PENSTOCK_WORKERS_EXTENSION ? chosen_workers : nullptr;
}

const void* table_of(const LoadedPlugin& plugin, uint32_t kind) {
  if (plugin.record->kind != kind)
    throw std::invalid_argument(std::string(plugin.record->id) + " is of another kind");
  return plugin.module->table;
}

[[noreturn]] void wrong(const std::string& name, const char* what) {
  throw std::invalid_argument("option '" + name + "' " + what);
}

void apply(const penstock_option& option, const OptionSetting& setting,
           penstock_option_value& value, std::deque<std::string>& texts) {
  const std::string name = text_of(option.name);
  double number = 0;
  switch (option.type) {
    case PENSTOCK_OPTION_BOOL:
      if (!std::holds_alternative<bool>(setting)) wrong(name, "wants true or false");
      value.integer = std::get<bool>(setting) ? 1 : 0;
      return;
    case PENSTOCK_OPTION_INTEGER:
      if (!std::holds_alternative<int>(setting)) wrong(name, "wants an integer");
      value.integer = std::get<int>(setting);
      number = static_cast<double>(value.integer);
      break;
    case PENSTOCK_OPTION_REAL:
      if (std::holds_alternative<int>(setting))
        number = std::get<int>(setting);
      else if (std::holds_alternative<double>(setting))
        number = std::get<double>(setting);
      else
        wrong(name, "wants a number");
      value.real = number;
      break;
    default: {
      if (!std::holds_alternative<const char*>(setting)) wrong(name, "wants a text");
      value.text = str_of(texts.emplace_back(std::get<const char*>(setting)));
      bool known = option.type == PENSTOCK_OPTION_STRING;
      for (uint64_t i = 0; i < option.n_choices; ++i)
        known |= text_of(option.choices[i]) == texts.back();
      if (!known) wrong(name, "is none of its choices");
      return;
    }
  }
  const bool open = (option.flags & PENSTOCK_OPTION_OPEN_MINIMUM) != 0;
  const bool open_above = (option.flags & PENSTOCK_OPTION_OPEN_MAXIMUM) != 0;
  if (number < option.minimum || number > option.maximum || (open && number == option.minimum) ||
      (open_above && number == option.maximum))
    wrong(name, "is out of range");
}

// For an option that must be set: the first value that its declaration allows.
void make_legal(const penstock_option& option, penstock_option_value& value) {
  const bool open = (option.flags & PENSTOCK_OPTION_OPEN_MINIMUM) != 0;
  if (option.type == PENSTOCK_OPTION_CHOICE && option.n_choices > 0) value.text = option.choices[0];
  if (option.type == PENSTOCK_OPTION_STRING) value.text = {"x", 1};
  const double lowest =
      std::isfinite(option.minimum) ? option.minimum : std::min(1.0, option.maximum);
  value.real =
      open ? std::min(lowest + 1e-6 * std::max(std::abs(lowest), 1.0), option.maximum) : lowest;
  if (option.type == PENSTOCK_OPTION_INTEGER)
    value.integer = static_cast<int64_t>(std::ceil(lowest)) + (open ? 1 : 0);
}

}  // namespace

const penstock_host* test_host() {
  static const penstock_host host = [] {
    penstock_host made{};
    made.struct_size = sizeof made;
    made.abi_major = PENSTOCK_ABI_MAJOR;
    made.abi_minor = PENSTOCK_ABI_MINOR;
    made.version = {"test", 4};
    made.status_new = status_new;
    made.status_code = status_code;
    made.status_message = status_message;
    made.status_free = status_free;
    made.log = log;
    made.code_path = code_path;
    made.extension = extension;
    return made;
  }();
  return &host;
}

int64_t live_statuses() {
  return n_live;
}

void set_code_path(const std::string& path) {
  chosen_path = path;
}

void set_workers(const penstock_workers* workers) {
  chosen_workers = workers;
}

Outcome take(penstock_status* status) {
  if (status == nullptr) return {};
  const Outcome outcome{heap(status)->code, heap(status)->message};
  status_free(nullptr, status);
  return outcome;
}

void require(const Outcome& outcome, const std::string& call) {
  promise(outcome.ok(), call, ": ", outcome.message);
}

void tell_calls_to(void (*listener)(const std::string& call)) {
  call_listener = listener;
}

void about_to(const std::string& call) {
  if (call_listener != nullptr) call_listener(call);
}

OptionValues::OptionValues(const penstock_module& module, const OptionSettings& settings) {
  for (uint64_t i = 0; i < module.n_options; ++i) {
    const penstock_option& option = *module.options[i];
    penstock_option_value& value = values_.emplace_back();
    value.struct_size = sizeof value;
    value.name = option.name;
    value.type = option.type;
    value.is_default = 1;
    value.real = option.default_real;
    value.integer = option.default_integer;
    value.text = option.default_text;
    if ((option.flags & PENSTOCK_OPTION_REQUIRED) != 0) make_legal(option, value);
    for (const auto& [name, setting] : settings) {
      if (name != text_of(option.name)) continue;
      apply(option, setting, value, texts_);
      value.is_default = 0;
    }
    pointers_.push_back(&value);
  }
  for (const auto& [name, setting] : settings) {
    bool declared = false;
    for (const penstock_option_value& value : values_) declared |= text_of(value.name) == name;
    if (!declared) wrong(name, "was not declared");
  }
}

const penstock_compressor& LoadedPlugin::compressor() const {
  return *static_cast<const penstock_compressor*>(table_of(*this, PENSTOCK_KIND_COMPRESSOR));
}
const penstock_memory& LoadedPlugin::memory() const {
  return *static_cast<const penstock_memory*>(table_of(*this, PENSTOCK_KIND_MEMORY));
}
const penstock_collective& LoadedPlugin::collective() const {
  return *static_cast<const penstock_collective*>(table_of(*this, PENSTOCK_KIND_COLLECTIVE));
}
const penstock_scheduler& LoadedPlugin::scheduler() const {
  return *static_cast<const penstock_scheduler*>(table_of(*this, PENSTOCK_KIND_SCHEDULER));
}

namespace {

std::string built_plugin(const std::string& name) {
  const char* folder = std::getenv("PENSTOCK_PLUGIN_DIRECTORY");
  if (folder == nullptr) throw std::runtime_error("PENSTOCK_PLUGIN_DIRECTORY is not set");
  return std::string(folder) + "/" + name;
}

}  // namespace

LoadedPlugin load_plugin(const std::string& file) {
  const std::string path = file.find('/') == std::string::npos ? built_plugin(file) : file;
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw std::runtime_error(dlerror());
  LoadedPlugin plugin;
  plugin.record = static_cast<const penstock_plugin_record*>(dlsym(library, "penstock_plugin"));
  if (plugin.record == nullptr) throw std::runtime_error(path + " exports no penstock_plugin");
  const Outcome outcome = take(plugin.record->load(test_host(), &plugin.module));
  if (!outcome.ok()) throw std::runtime_error(path + ": " + outcome.message);
  return plugin;
}

LoadedPlugin load_plugin(const std::string& kind, const std::string& name) {
  return load_plugin(kind + "-" + name + ".so");
}

}  // namespace penstock::test
