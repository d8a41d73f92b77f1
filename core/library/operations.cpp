// The C interface of named operations, and of uneven data (runtime.h).

#include "core/library/door.hpp"

#include "core/plugin/c_struct.hpp"

#include <cstddef>
#include <vector>

using penstock::door;
using penstock::Operation;
using penstock::Status;
using penstock::take_struct;

extern "C" {

penstock_status* penstock_operations_submit(penstock_runtime* runtime,
                                            const penstock_operation_declaration* declarations,
                                            uint64_t n_operations,
                                            penstock_operation** operations) {
  return door(runtime, [&]() -> Status {
    std::vector<penstock_operation_declaration> copies(n_operations);
    std::vector<std::unique_ptr<penstock_operation>> made(n_operations);
    const auto* next = reinterpret_cast<const std::byte*>(declarations);
    for (uint64_t i = 0; i < n_operations; ++i) {
      const auto* declaration = reinterpret_cast<const penstock_operation_declaration*>(next);
      PENSTOCK_TRY(take_struct(declaration, "penstock_operation_declaration", copies[i]));
      next += declarations->struct_size;
      made[i] = std::make_unique<penstock_operation>();
    }
    PENSTOCK_ASSIGN(auto submitted, runtime->runtime->operations().submit(copies));
    for (uint64_t i = 0; i < n_operations; ++i) {
      made[i]->operation = std::move(submitted[i]);
      operations[i] = made[i].release();
    }
    return {};
  });
}
penstock_status* penstock_operation_submit(penstock_runtime* runtime,
                                           const penstock_operation_declaration* declaration,
                                           penstock_operation** operation) {
  return penstock_operations_submit(runtime, declaration, 1, operation);
}
penstock_status* penstock_operation_poll(penstock_operation* operation, uint32_t* done) {
  return door(operation, [&]() -> Status {
    *done = operation->operation->done() ? 1 : 0;
    return {};
  });
}
penstock_status* penstock_operation_wait(penstock_operation* operation) {
  return door(operation, [&] { return operation->operation->wait(); });
}
penstock_status* penstock_operation_result(penstock_operation* operation, const void** data,
                                           uint64_t* bytes, const uint64_t** rows,
                                           uint64_t* n_rows) {
  return door(operation, [&]() -> Status {
    PENSTOCK_ASSIGN(Operation::Output output, operation->operation->result());
    *data = output.data;
    *bytes = output.bytes;
    *rows = output.rows.data();
    *n_rows = output.rows.size();
    return {};
  });
}
void penstock_operation_release(penstock_operation* operation) {
  if (operation == nullptr || !operation->home.is_here()) return;
  if (!operation->operation->done()) (void)operation->operation->wait();
  delete operation;
}

penstock_status* penstock_join(penstock_runtime* runtime, uint64_t patience_us,
                               uint32_t* last_rank) {
  return door(runtime, [&] { return runtime->runtime->join(patience_us, *last_rank); });
}
}  // extern "C"
