// The state of ranks that train apart.

#include "saved.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstdint>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "outer.hpp"

namespace penstock::torch {
namespace {

using ::torch::serialize::InputArchive;
using ::torch::serialize::OutputArchive;

constexpr char kHeaderKey[] = "header";

// The settings and the place in the round, each with its name. The first two may differ between the
// state and the LocalSteps that loads it.
using Header = std::vector<std::pair<std::string, std::string>>;
constexpr std::size_t kSteps = 0, kAreEqual = 1, kMayDiffer = 2;

Header header_of(const Rounds& rounds) {
  std::string parameters, between;
  for (const auto& fragment : rounds.fragments()) {
    for (const NamedParameter& one : fragment->named())
      parameters += std::exchange(between, ", ") + one.name;
    between = "; ";
  }
  const Rotation& rotation = rounds.rotation();
  return {{"steps", std::to_string(rounds.steps())},
          {"are_equal", rounds.are_equal() ? "yes" : "no"},
          {"every", std::to_string(rotation.every)},
          {"fragments", std::to_string(rotation.fragments)},
          {"delay", std::to_string(rotation.delay)},
          {"momentum", keeps_momentum(rounds.outer()) ? "yes" : "no"},
          {"parameters", parameters}};
}

at::Tensor tensor_of(const std::vector<std::uint8_t>& bytes) {
  at::Tensor tensor = at::empty({static_cast<std::int64_t>(bytes.size())}, at::kByte);
  std::copy(bytes.begin(), bytes.end(), tensor.data_ptr<std::uint8_t>());
  return tensor;
}

// An undefined tensor if the archive has none under this key.
at::Tensor find(InputArchive& archive, const std::string& key) {
  at::Tensor found;
  return archive.try_read(key, found, /*is_buffer=*/true) ? found : at::Tensor();
}

std::vector<std::uint8_t> bytes_of(InputArchive& archive, const std::string& key) {
  const at::Tensor found = find(archive, key);
  if (!found.defined() || found.scalar_type() != at::kByte)
    refuse_argument("the saved state of LocalSteps has no bytes under the key \"" + key +
                    "\", so it is incomplete; expected the state that this rank has saved");
  const at::Tensor plain = found.to(at::kCPU).contiguous();
  const auto* first = plain.data_ptr<std::uint8_t>();
  return {first, first + plain.numel()};
}

// Reads lines of a name and a value, and compares them with `expected`. Returns the header found.
Header read_header(InputArchive& archive, const Header& expected) {
  const std::vector<std::uint8_t> bytes = bytes_of(archive, kHeaderKey);
  std::istringstream lines(std::string(bytes.begin(), bytes.end()));
  Header header;
  for (const auto& [name, value] : expected) {
    std::string line;
    std::getline(lines, line);
    if (line.rfind(name + " ", 0) != 0)
      refuse_argument("the saved state of LocalSteps has no " + name +
                      ", so it was not saved by LocalSteps of this version");
    header.emplace_back(name, line.substr(name.size() + 1));
    if (header.size() <= kMayDiffer || header.back().second == value) continue;
    refuse_argument("the saved state of LocalSteps has " + name + " " + header.back().second +
                    ", expected " + value +
                    ": make the optimizer with the arguments of the run that saved, or do not load "
                    "the state, to start a new round");
  }
  return header;
}

std::int64_t steps_in(const Header& header) {
  std::istringstream text(header[kSteps].second);
  std::int64_t steps = -1;
  if (!(text >> steps) || steps < 0)
    refuse_argument("the saved state of LocalSteps has steps " + header[kSteps].second +
                    ", expected a number");
  return steps;
}

// Where tensor `number` of a kind lies. Parameters are numbered through all fragments.
std::string key_of(const char* kind, std::size_t number) {
  return kind + std::to_string(number);
}

// The saved tensors of one kind for a fragment whose first parameter has the number `first`. Empty
// if the state has none of this kind and it is not due.
std::vector<at::Tensor> tensors_of(InputArchive& archive, const Fragment& fragment,
                                   const char* kind, std::size_t first, bool is_due) {
  const std::vector<at::Tensor> anchors = fragment.anchors();
  std::vector<at::Tensor> found;
  for (std::size_t i = 0; i < anchors.size(); ++i) {
    const std::string key = key_of(kind, first + i);
    found.push_back(find(archive, key));
    const bool is_there = found.back().defined();
    if (!is_there && !is_due && i == 0) return {};
    if (is_there && found.back().sizes() == anchors[i].sizes() && found.back().is_floating_point())
      continue;
    refuse_argument("the saved state of LocalSteps has " +
                    (is_there ? "a tensor " + shape_text(found.back()) : std::string("nothing")) +
                    " under the key \"" + key + "\" for parameter " + fragment.named()[i].name +
                    ", expected a tensor " + shape_text(anchors[i]) +
                    ": it was saved with another model, or is incomplete");
  }
  return found;
}

void write_tensors(OutputArchive& archive, const char* kind, std::size_t first,
                   const std::vector<at::Tensor>& tensors) {
  for (std::size_t i = 0; i < tensors.size(); ++i)
    archive.write(key_of(kind, first + i), tensors[i].detach().clone(), /*is_buffer=*/true);
}

struct SavedFragment {
  std::vector<std::uint8_t> set;
  std::vector<at::Tensor> anchors, momenta, results;
};

}  // namespace

void write_state(Rounds& rounds, OutputArchive& archive) {
  rounds.check_alive();
  rounds.take_anchors();
  rounds.wait();
  std::vector<std::uint8_t> header;
  for (const auto& [name, value] : header_of(rounds)) {
    const std::string line = name + " " + value + "\n";
    header.insert(header.end(), line.begin(), line.end());
  }
  archive.write(kHeaderKey, tensor_of(header), /*is_buffer=*/true);
  std::size_t number = 0, first = 0;
  for (const auto& fragment : rounds.fragments()) {
    archive.write(key_of("set", number++), tensor_of(fragment->set().save()), /*is_buffer=*/true);
    write_tensors(archive, "anchor", first, fragment->anchors());
    write_tensors(archive, "momentum", first, fragment->momenta());
    write_tensors(archive, "result", first, fragment->results());
    first += fragment->named().size();
  }
}

void read_state(Rounds& rounds, InputArchive& archive) {
  rounds.check_alive();
  const Header header = read_header(archive, header_of(rounds));
  const std::int64_t steps = steps_in(header);
  std::vector<SavedFragment> saved;
  std::size_t first = 0;
  for (const auto& fragment : rounds.fragments()) {
    saved.push_back(
        {bytes_of(archive, key_of("set", saved.size())),
         tensors_of(archive, *fragment, "anchor", first, true),
         tensors_of(archive, *fragment, "momentum", first, keeps_momentum(rounds.outer())),
         tensors_of(archive, *fragment, "result", first, false)});
    first += fragment->named().size();
  }
  rounds.forget();
  for (std::size_t i = 0; i < saved.size(); ++i) {
    Fragment& fragment = *rounds.fragments()[i];
    fragment.set().load(saved[i].set);
    fragment.restore(saved[i].anchors, saved[i].momenta, saved[i].results);
  }
  rounds.restored(steps, header[kAreEqual].second == "yes");
}

}  // namespace penstock::torch
