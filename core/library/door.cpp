// The C interface (runtime.h): turns C arguments into calls of the runtime, and results into
// statuses. It contains no logic. Named operations are in operations.cpp.

#include "core/library/door.hpp"

#include "core/base/hash.hpp"
#include "core/control/protocol.hpp"
#include "core/plugin/c_struct.hpp"
#include "core/tensor/outer_step.hpp"

using penstock::door;
using penstock::Runtime;
using penstock::Set;
using penstock::Status;
using penstock::StepProtocol;
using penstock::take_struct;
using penstock::view;

namespace {

Status emit(penstock::Result<std::string> text, void* context, penstock_text_sink sink) {
  if (!text.ok()) return text.status();
  sink(context, penstock::str(text.value()));
  return {};
}

}  // namespace

extern "C" {

uint32_t penstock_error_code(const penstock_status* error) {
  return static_cast<uint32_t>(penstock::peek(error).code());
}
penstock_str penstock_error_message(const penstock_status* error) {
  return penstock::str(penstock::peek(error).message());
}
void penstock_error_free(penstock_status* error) {
  (void)penstock::from_c(error);
}

penstock_status* penstock_error_make(uint32_t code, penstock_str message) {
  return door([&]() -> Status {
    if (code == PENSTOCK_OK) return {};
    const bool is_known = code <= PENSTOCK_INTERNAL;
    return Status(is_known ? static_cast<penstock::Code>(code) : penstock::Code::internal,
                  std::string(view(message)));
  });
}

penstock_str penstock_version(void) {
  return penstock::str(PENSTOCK_VERSION);
}
uint32_t penstock_abi_version(void) {
  return uint32_t{PENSTOCK_ABI_MAJOR} << 16 | PENSTOCK_ABI_MINOR;
}

penstock_status* penstock_runtime_open(const penstock_runtime_options* options,
                                       penstock_runtime** runtime) {
  return door([&]() -> Status {
    penstock_runtime_options copy{};
    PENSTOCK_TRY(take_struct(options, "penstock_runtime_options", copy));
    PENSTOCK_ASSIGN(auto opened, Runtime::open(copy));
    *runtime = new penstock_runtime{std::move(opened)};
    return {};
  });
}
penstock_status* penstock_runtime_leave(penstock_runtime* runtime, uint64_t wait_us,
                                        uint32_t* all_left) {
  return door(runtime, [&] {
    *all_left = runtime->runtime->leave(wait_us) ? 1 : 0;
    return Status();
  });
}
void penstock_runtime_close(penstock_runtime* runtime) {
  if (runtime == nullptr || !runtime->home.is_here()) return;
  delete runtime;
}
void penstock_abort(penstock_runtime* runtime, penstock_str reason) {
  if (!runtime->home.is_here()) return;
  runtime->runtime->abort_as_notified(
      penstock::aborted("{}", penstock::control::told_by(runtime->runtime->world().rank(),
                                                         "gave the run up", view(reason))));
}

penstock_status* penstock_runtime_check(penstock_runtime* runtime) {
  return door(runtime, [&] { return runtime->runtime->state(); });
}

penstock_status* penstock_runtime_topology(penstock_runtime* runtime, penstock_topology* topology) {
  return door(runtime, [&] {
    return penstock::fill_struct(topology, "penstock_topology", runtime->runtime->topology());
  });
}
penstock_status* penstock_runtime_report(penstock_runtime* runtime, void* context,
                                         penstock_text_sink sink) {
  return door(runtime, [&] { return emit(runtime->runtime->report(), context, sink); });
}
penstock_status* penstock_timeline(penstock_runtime* runtime, penstock_str path) {
  return door(runtime, [&] {
    auto& timeline = runtime->runtime->timeline();
    return path.size == 0 ? timeline.stop() : timeline.start(std::string(view(path)));
  });
}

penstock_status* penstock_set_create(penstock_runtime* runtime,
                                     const penstock_set_declaration* declaration,
                                     penstock_set** set) {
  return door(runtime, [&]() -> Status {
    penstock_set_declaration copy{};
    PENSTOCK_TRY(take_struct(declaration, "penstock_set_declaration", copy));
    PENSTOCK_ASSIGN(auto made, Set::create(runtime->runtime->services(), copy));
    std::vector<std::string> names;
    for (uint64_t i = 0; i < copy.n_gradients; ++i)
      names.emplace_back(view(copy.gradients[i]->name));
    Set& opened = *made;
    *set = new penstock_set{std::move(made), StepProtocol(opened, std::move(names))};
    return {};
  });
}
void penstock_set_destroy(penstock_set* set) {
  if (set == nullptr || !set->home.is_here()) return;
  delete set;
}

penstock_status* penstock_set_learning_rate(penstock_set* set, uint64_t gradient,
                                            double learning_rate) {
  return door(set, [&] { return set->set->learning_rate(gradient, learning_rate); });
}
penstock_status* penstock_set_learning_rates(penstock_set* set, const double* learning_rates,
                                             uint64_t n_gradients) {
  return door(set, [&] { return set->set->learning_rates({learning_rates, n_gradients}); });
}
uint64_t penstock_checksum(const void* data, uint64_t size) {
  return penstock::hash64(data, size);
}
penstock_status* penstock_set_compare_parameters(penstock_set* set, const penstock_str* names,
                                                 const uint64_t* checksums, uint64_t n_parameters,
                                                 penstock_str advice) {
  return door(set, [&] {
    return set->set->compare_parameters({names, n_parameters}, {checksums, n_parameters},
                                        view(advice));
  });
}
penstock_status* penstock_set_comparison_due(penstock_set* set, uint32_t* due) {
  return door(set, [&] {
    *due = set->set->comparison_due() ? 1 : 0;
    return Status();
  });
}
penstock_status* penstock_set_agree(penstock_set* set, penstock_str text) {
  return door(set, [&] {
    set->set->agree(view(text));
    return Status();
  });
}
penstock_status* penstock_set_agreed(penstock_set* set) {
  return door(set, [&] { return set->set->agreed(); });
}
penstock_status* penstock_set_grad_scale(penstock_set* set, double grad_scale) {
  return door(set, [&] { return set->set->grad_scale(grad_scale); });
}
penstock_status* penstock_set_forward_times(penstock_set* set, const double* first_use_us,
                                            uint64_t n_gradients, double forward_us) {
  return door(set, [&] {
    return set->set->forward_times({first_use_us, n_gradients}, forward_us);
  });
}
penstock_status* penstock_set_momentum(penstock_set* set) {
  return door(set, [&] { return set->set->optimizer_momentum(); });
}
penstock_status* penstock_set_given_buckets(penstock_set* set, const uint32_t* buckets,
                                            uint64_t n_gradients) {
  return door(set, [&] { return set->set->given_buckets({buckets, n_gradients}); });
}
penstock_status* penstock_set_on_result(penstock_set* set, void* context,
                                        penstock_result_sink sink) {
  return door(set, [&] { return set->set->on_result(context, sink); });
}
penstock_status* penstock_gradient_ready(penstock_set* set, uint64_t index,
                                         const penstock_tensor* tensor, void* stream) {
  return door(set, [&]() -> Status {
    penstock_tensor copy{};
    PENSTOCK_TRY(take_struct(tensor, "penstock_tensor", copy));
    return set->set->gradient_ready(index, copy, stream);
  });
}
penstock_status* penstock_gradient_absent(penstock_set* set, uint64_t index,
                                          const penstock_tensor* tensor) {
  return door(set, [&]() -> Status {
    penstock_tensor copy{};
    PENSTOCK_TRY(take_struct(tensor, "penstock_tensor", copy));
    return set->set->gradient_absent(index, copy);
  });
}
penstock_status* penstock_wait(penstock_set* set, uint64_t index) {
  return door(set, [&] { return set->step.wait(index); });
}
penstock_status* penstock_wait_stream(penstock_set* set, uint64_t index, void* stream) {
  return door(set, [&] { return set->step.wait_stream(index, stream); });
}
penstock_status* penstock_wait_all(penstock_set* set) {
  return door(set, [&] { return set->step.wait_all(); });
}
penstock_status* penstock_poll(penstock_set* set, uint64_t index, uint32_t* done) {
  return door(set, [&]() -> Status {
    bool is_done = false;
    PENSTOCK_TRY(set->set->poll(index, is_done));
    *done = is_done ? 1 : 0;
    return {};
  });
}
penstock_status* penstock_set_defers(penstock_set* set, uint32_t* defers) {
  return door(set, [&]() -> Status {
    *defers = set->set->defers();
    return {};
  });
}
penstock_status* penstock_backward_end(penstock_set* set) {
  return door(set, [&] { return set->step.backward_end(); });
}
penstock_status* penstock_flush(penstock_set* set) {
  return door(set, [&] { return set->set->flush(); });
}
penstock_status* penstock_set_passes(penstock_set* set, uint32_t passes, uint64_t n_beside) {
  return door(set, [&] { return set->step.set_passes(passes, n_beside); });
}
penstock_status* penstock_gradient_came(penstock_set* set, uint64_t index,
                                        const penstock_tensor* tensor, void* stream,
                                        uint32_t* todo) {
  return door(set, [&]() -> Status {
    penstock_tensor copy{};
    if (tensor != nullptr) PENSTOCK_TRY(take_struct(tensor, "penstock_tensor", copy));
    return set->step.came(index, tensor == nullptr ? nullptr : &copy, stream, *todo);
  });
}
penstock_status* penstock_step_begin(penstock_set* set) {
  return door(set, [&] { return set->step.begin(); });
}
penstock_status* penstock_step_rest(penstock_set* set, uint64_t* gradients, uint64_t* n_gradients) {
  return door(set, [&] {
    const std::vector<uint64_t> rest = set->step.rest();
    std::copy(rest.begin(), rest.end(), gradients);
    *n_gradients = rest.size();
    return Status();
  });
}
penstock_status* penstock_set_phase(penstock_set* set, uint32_t* phase, uint32_t* came) {
  return door(set, [&] {
    *phase = set->step.phase();
    *came = set->step.has_come() ? 1 : 0;
    return Status();
  });
}
penstock_status* penstock_step_restart(penstock_set* set) {
  return door(set, [&] {
    set->step.restart();
    return Status();
  });
}
penstock_status* penstock_optimizer_step(penstock_set* set, const uint64_t* gradients,
                                         const uint8_t* gone, uint64_t n_gradients,
                                         uint32_t moment) {
  return door(set, [&] {
    return set->set->optimizer_step({gradients, n_gradients},
                                    {gone, gone == nullptr ? 0 : n_gradients}, moment);
  });
}
penstock_status* penstock_results_gone(penstock_set* set, const uint8_t* gone,
                                       uint64_t n_gradients) {
  return door(set, [&] { return set->set->results_gone({gone, n_gradients}); });
}
penstock_status* penstock_outcome_open(penstock_set* set, uint32_t* open) {
  return door(set, [&] {
    *open = set->set->outcome_is_open() ? 1 : 0;
    return Status();
  });
}
penstock_status* penstock_step_end(penstock_set* set, uint32_t outcome) {
  return door(set, [&] { return set->step.end(outcome); });
}
penstock_status* penstock_set_let_go(penstock_set* set) {
  return door(set, [&] { return set->step.let_go(); });
}
penstock_status* penstock_set_save(penstock_set* set, void* context,
                                   void (*sink)(void*, const void*, uint64_t)) {
  return door(set, [&]() -> Status {
    std::string bytes;
    PENSTOCK_TRY(set->set->save(bytes));
    sink(context, bytes.data(), bytes.size());
    return {};
  });
}
penstock_status* penstock_set_load(penstock_set* set, const void* data, uint64_t size) {
  return door(set, [&] { return set->step.load({static_cast<const char*>(data), size}); });
}
penstock_status* penstock_set_load_shards(penstock_set* set, const void* const* shards,
                                          const uint64_t* sizes, uint64_t n_shards, void* context,
                                          penstock_text_sink sink) {
  return door(set, [&]() -> Status {
    std::vector<std::string_view> views;
    for (uint64_t i = 0; i < n_shards; ++i)
      views.emplace_back(static_cast<const char*>(shards[i]), sizes[i]);
    std::string said;
    PENSTOCK_TRY(set->step.load_shards(views, said));
    if (sink != nullptr) sink(context, penstock::str(said));
    return {};
  });
}
penstock_status* penstock_set_reset(penstock_set* set) {
  return door(set, [&] { return set->step.reset(); });
}
penstock_status* penstock_set_report(penstock_set* set, void* context, penstock_text_sink sink) {
  return door(set, [&] { return emit(set->set->report(), context, sink); });
}
penstock_status* penstock_set_counters(penstock_set* set, penstock_counters* counters) {
  return door(set, [&]() -> Status {
    penstock_counters values{};
    set->set->counters(values);
    return penstock::fill_struct(counters, "penstock_counters", values);
  });
}

penstock_status* penstock_take_outer_step(const penstock_outer_step* step) {
  return door([&]() -> Status {
    penstock_outer_step copy{};
    PENSTOCK_TRY(take_struct(step, "penstock_outer_step", copy));
    return penstock::take_outer_step(copy);
  });
}

}  // extern "C"
