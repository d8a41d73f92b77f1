// Copies parameters and the optimizer's state from one rank to all ranks.

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>
#include <torch/serialize.h>

#include <algorithm>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

#include "deferred.hpp"
#include "memory.hpp"
#include "slot.hpp"
#include "world.hpp"

namespace penstock::torch {
namespace {

// The broadcast of one tensor. The operation keeps addresses of members, so a Sent never moves.
struct Sent {
  at::Tensor target;
  at::Tensor memory;  // contiguous, in host memory; the target's own memory if it is both
  std::vector<std::int64_t> shape;
  penstock_tensor view{};
  std::optional<Operation> operation;
};

void check_root(std::uint32_t root, const Ranks& ranks) {
  if (root >= size())
    refuse_argument("root is " + std::to_string(root) + ", expected a rank below " +
                    std::to_string(size()));
  if (!ranks.empty() && std::find(ranks.begin(), ranks.end(), root) == ranks.end())
    refuse_argument("root is " + std::to_string(root) + ", expected a world rank in `ranks`");
}

void start(Sent& sent, const std::string& name, std::uint32_t root, const Ranks& ranks) {
  const at::Tensor& target = sent.target;
  if (!has_dense_values(target))
    refuse_argument("tensor " + name + " is " + shape_text(target) + " on " +
                    target.device().str() +
                    ", expected a dense tensor on the CPU or CUDA: the libtorch frontend sends no "
                    "other tensors yet");
  if (!may_be_written(target))
    refuse_argument("tensor " + name +
                    " has elements that share memory, as after expand(), expected a place for each "
                    "value of the root: give the module a clone() of it");
  sent.memory = in_host_memory(target);
  if (const auto dtype = door_dtype(target.scalar_type())) {
    sent.shape = target.sizes().vec();
    sent.view = tensor_view(sent.memory.data_ptr(), sent.shape, *dtype);
  } else {  // bool, complex: sent as bytes
    sent.shape = {static_cast<std::int64_t>(sent.memory.nbytes())};
    sent.view = tensor_view(sent.memory.data_ptr(), sent.shape, PENSTOCK_UINT8);
  }
  sent.operation.emplace(start_broadcast(current(), "broadcast." + name, sent.view, root, ranks));
}

using Entries = std::vector<std::pair<std::string, at::Tensor>>;

void broadcast_entries(const Entries& entries, std::uint32_t root, const Ranks& ranks) {
  check_root(root, ranks);
  flush_all();  // updates that still wait belong to the values that are sent
  const at::NoGradGuard without_history;
  std::vector<Sent> all(entries.size());
  for (std::size_t i = 0; i < entries.size(); ++i) {
    all[i].target = entries[i].second.detach();
    start(all[i], entries[i].first, root, ranks);
  }
  for (Sent& sent : all) {
    sent.operation->wait();
    if (sent.memory.is_same(sent.target)) continue;
    // torch lets nobody write to an inference tensor outside of this mode.
    const c10::InferenceMode mode(sent.target.is_inference());
    sent.target.copy_(sent.memory);
  }
}

// Returns the `text` of rank `root` on every rank; other ranks' `text` is ignored.
std::string broadcast_text(const std::string& name, std::string text, std::uint32_t root,
                           const Ranks& ranks) {
  std::int64_t length = static_cast<std::int64_t>(text.size());
  const std::vector<std::int64_t> one{1};
  start_broadcast(current(), name + ".sz", tensor_view(&length, one, PENSTOCK_INT64), root, ranks)
      .wait();
  text.resize(static_cast<std::size_t>(length));
  const std::vector<std::int64_t> shape{length};
  start_broadcast(current(), name + ".t", tensor_view(text.data(), shape, PENSTOCK_UINT8), root,
                  ranks)
      .wait();
  return text;
}

}  // namespace

void broadcast_parameters(const NamedTensors& tensors, std::uint32_t root, Ranks ranks) {
  Entries entries;
  for (const auto& item : tensors) entries.emplace_back(item.key(), item.value());
  broadcast_entries(entries, root, ranks);
}

void broadcast_parameters(::torch::nn::Module& module, std::uint32_t root, Ranks ranks) {
  Entries entries;
  for (const auto& item : module.named_parameters()) entries.emplace_back(item.key(), item.value());
  for (const auto& item : module.named_buffers()) entries.emplace_back(item.key(), item.value());
  broadcast_entries(entries, root, ranks);
}

void broadcast_optimizer_state(::torch::optim::Optimizer& optimizer, std::uint32_t root,
                               Ranks ranks) {
  check_root(root, ranks);
  flush_all();
  const bool is_root = rank() == root;
  std::ostringstream saved;
  if (is_root) ::torch::save(optimizer, saved);
  const std::string received = broadcast_text("optimizer_state", saved.str(), root, ranks);
  if (is_root) return;
  optimizer.state().clear();
  std::istringstream stream(received);
  ::torch::load(optimizer, stream);
}

}  // namespace penstock::torch
