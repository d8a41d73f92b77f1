// The C door (runtime.h): turns C arguments into calls of the runtime and results into statuses. No
// logic lives here.

#include "core/pipeline/runtime.hpp"
#include "core/pipeline/set.hpp"

#include <exception>

using penstock::Operation;
using penstock::Runtime;
using penstock::Set;
using penstock::Status;
using penstock::to_c;
using penstock::view;

struct penstock_runtime {
  std::unique_ptr<Runtime> runtime;
};
struct penstock_set {
  std::unique_ptr<Set> set;
};
struct penstock_operation {
  std::shared_ptr<Operation> operation;
};

namespace {

// Nothing is thrown through the door.
template <typename Body>
penstock_status* door(Body&& body) noexcept {
  try {
    return to_c(body());
  } catch (const std::bad_alloc&) {
    return to_c(Status(penstock::Code::out_of_memory, "out of memory"));
  } catch (const std::exception& error) {
    return to_c(Status(penstock::Code::internal, error.what()));
  }
}

// A struct the caller filled: its size is sane and what lies beyond the fields we know is zero.
template <typename T>
Status check_struct(const T* given, std::string_view name) {
  if (given == nullptr) return penstock::invalid_argument("{} is null", name);
  if (const uint64_t size = given->struct_size; size < sizeof(uint64_t) || size > (1u << 20))
    return penstock::invalid_argument("{}.struct_size is {}, expected sizeof({}) = {}", name,
                                      given->struct_size, name, sizeof(T));
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  for (uint64_t i = sizeof(T); i < given->struct_size; ++i)
    if (bytes[i] != 0)
      return penstock::unimplemented(
          "{} has a field beyond byte {} that this version does not know", name, i);
  return {};
}

// The caller's struct as ours: fields it does not know are zero.
template <typename T>
T copy_struct(const T* given) {
  T copy{};
  std::memcpy(&copy, given, std::min<uint64_t>(given->struct_size, sizeof(T)));
  return copy;
}

template <typename T>
Status fill_struct(T* target, const T& values) {
  if (target == nullptr || target->struct_size < sizeof(uint64_t))
    return penstock::invalid_argument("the struct to fill has no size");
  const uint64_t size = target->struct_size;
  std::memcpy(target, &values, std::min<uint64_t>(size, sizeof(T)));
  target->struct_size = size;
  return {};
}

Status emit(penstock::Result<std::string> text, void* context, penstock_text_sink sink) {
  if (!text.ok()) return text.status();
  sink(context, penstock::str(text.value()));
  return {};
}

Status copy_tensor(const penstock_tensor* tensor, penstock_tensor& copy) {
  PENSTOCK_TRY(check_struct(tensor, "penstock_tensor"));
  copy = copy_struct(tensor);
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

penstock_str penstock_version(void) {
  return penstock::str(PENSTOCK_VERSION);
}
uint32_t penstock_abi_version(void) {
  return uint32_t{PENSTOCK_ABI_MAJOR} << 16 | PENSTOCK_ABI_MINOR;
}

penstock_status* penstock_runtime_open(const penstock_runtime_options* options,
                                       penstock_runtime** runtime) {
  return door([&]() -> Status {
    PENSTOCK_TRY(check_struct(options, "penstock_runtime_options"));
    PENSTOCK_ASSIGN(auto opened, Runtime::open(copy_struct(options)));
    *runtime = new penstock_runtime{std::move(opened)};
    return {};
  });
}
void penstock_runtime_close(penstock_runtime* runtime) {
  delete runtime;
}
void penstock_abort(penstock_runtime* runtime, penstock_str reason) {
  runtime->runtime->give_up(penstock::aborted("rank {} gave the run up: {}",
                                              runtime->runtime->world().rank, view(reason)));
}

penstock_status* penstock_runtime_topology(penstock_runtime* runtime, penstock_topology* topology) {
  return door([&] { return fill_struct(topology, runtime->runtime->topology()); });
}
penstock_status* penstock_runtime_report(penstock_runtime* runtime, void* context,
                                         penstock_text_sink sink) {
  return door([&] { return emit(runtime->runtime->report(), context, sink); });
}
penstock_status* penstock_timeline(penstock_runtime* runtime, penstock_str path) {
  return door([&] {
    auto& timeline = runtime->runtime->timeline();
    return path.size == 0 ? timeline.stop() : timeline.start(std::string(view(path)));
  });
}

penstock_status* penstock_set_create(penstock_runtime* runtime,
                                     const penstock_set_declaration* declaration,
                                     penstock_set** set) {
  return door([&]() -> Status {
    PENSTOCK_TRY(check_struct(declaration, "penstock_set_declaration"));
    for (uint64_t i = 0; i < declaration->n_gradients; ++i)
      PENSTOCK_TRY(check_struct(declaration->gradients[i], "penstock_gradient_declaration"));
    PENSTOCK_ASSIGN(auto made, Set::create(*runtime->runtime, copy_struct(declaration)));
    *set = new penstock_set{std::move(made)};
    return {};
  });
}
void penstock_set_destroy(penstock_set* set) {
  delete set;
}

penstock_status* penstock_set_learning_rate(penstock_set* set, uint64_t gradient,
                                            double learning_rate) {
  return door([&] { return set->set->learning_rate(gradient, learning_rate); });
}
penstock_status* penstock_set_grad_scale(penstock_set* set, double grad_scale) {
  return door([&] { return set->set->grad_scale(grad_scale); });
}
penstock_status* penstock_gradient_ready(penstock_set* set, uint64_t index,
                                         const penstock_tensor* tensor, void* stream) {
  return door([&]() -> Status {
    (void)stream;  // CPU tensors only: checked with the tensor
    penstock_tensor copy{};
    PENSTOCK_TRY(copy_tensor(tensor, copy));
    return set->set->gradient_ready(index, copy);
  });
}
penstock_status* penstock_gradient_absent(penstock_set* set, uint64_t index,
                                          const penstock_tensor* tensor) {
  return door([&]() -> Status {
    penstock_tensor copy{};
    PENSTOCK_TRY(copy_tensor(tensor, copy));
    return set->set->gradient_absent(index, copy);
  });
}
penstock_status* penstock_wait(penstock_set* set, uint64_t index) {
  return door([&] { return set->set->wait(index); });
}
penstock_status* penstock_wait_all(penstock_set* set) {
  return door([&] { return set->set->wait_all(); });
}
penstock_status* penstock_poll(penstock_set* set, uint64_t index, uint32_t* done) {
  return door([&]() -> Status {
    bool is_done = false;
    PENSTOCK_TRY(set->set->poll(index, is_done));
    *done = is_done ? 1 : 0;
    return {};
  });
}
penstock_status* penstock_set_defers(penstock_set* set, uint32_t* defers) {
  *defers = set->set->defers() ? 1 : 0;
  return nullptr;
}
penstock_status* penstock_backward_end(penstock_set* set) {
  return door([&] { return set->set->backward_end(); });
}
penstock_status* penstock_flush(penstock_set* set) {
  return door([&] { return set->set->flush(); });
}
penstock_status* penstock_step_end(penstock_set* set, uint32_t applied) {
  return door([&] { return set->set->step_end(applied != 0); });
}
penstock_status* penstock_set_save(penstock_set* set, void* context,
                                   void (*sink)(void*, const void*, uint64_t)) {
  return door([&]() -> Status {
    std::string bytes;
    PENSTOCK_TRY(set->set->save(bytes));
    sink(context, bytes.data(), bytes.size());
    return {};
  });
}
penstock_status* penstock_set_load(penstock_set* set, const void* data, uint64_t size) {
  return door([&] { return set->set->load({static_cast<const char*>(data), size}); });
}
penstock_status* penstock_set_reset(penstock_set* set) {
  return door([&] { return set->set->reset(); });
}
penstock_status* penstock_set_report(penstock_set* set, void* context, penstock_text_sink sink) {
  return door([&] { return emit(set->set->report(), context, sink); });
}
penstock_status* penstock_set_counters(penstock_set* set, penstock_counters* counters) {
  return door([&]() -> Status {
    penstock_counters values{};
    set->set->counters(values);
    return fill_struct(counters, values);
  });
}

penstock_status* penstock_operation_submit(penstock_runtime* runtime,
                                           const penstock_operation_declaration* declaration,
                                           penstock_operation** operation) {
  return door([&]() -> Status {
    PENSTOCK_TRY(check_struct(declaration, "penstock_operation_declaration"));
    PENSTOCK_ASSIGN(auto submitted,
                    runtime->runtime->operations().submit(copy_struct(declaration)));
    *operation = new penstock_operation{std::move(submitted)};
    return {};
  });
}
penstock_status* penstock_operation_poll(penstock_operation* operation, uint32_t* done) {
  *done = operation->operation->done() ? 1 : 0;
  return nullptr;
}
penstock_status* penstock_operation_wait(penstock_operation* operation) {
  return door([&] { return operation->operation->wait(); });
}
penstock_status* penstock_operation_result(penstock_operation* operation, const void** data,
                                           uint64_t* bytes, const uint64_t** rows,
                                           uint64_t* n_rows) {
  return door([&]() -> Status {
    PENSTOCK_ASSIGN(Operation::Output output, operation->operation->result());
    *data = output.data;
    *bytes = output.bytes;
    *rows = output.rows.data();
    *n_rows = output.rows.size();
    return {};
  });
}
void penstock_operation_release(penstock_operation* operation) {
  if (operation == nullptr) return;
  if (!operation->operation->done()) (void)operation->operation->wait();
  delete operation;
}

}  // extern "C"
