// Planning a memory on the simulated rank: storage and states as its need asks for.
#include "tools/penstock/check_memory_rank.hpp"

namespace penstock::command {

namespace {

// What a sparse compressor, or one that loses nothing, says of an item.
void describe_need(CompressorNeed& need, uint64_t numel, bool lossless) {
  const uint32_t roles[] = {PENSTOCK_ROLE_INDICES, PENSTOCK_ROLE_VALUES};
  const uint32_t dtypes[] = {PENSTOCK_UINT32, PENSTOCK_FLOAT32};
  penstock_section_bound bounds[2] = {};
  for (int s = 0; s < 2; ++s) {
    bounds[s].struct_size = sizeof bounds[s];
    bounds[s].capacity = numel;
    bounds[s].role = roles[s];
    bounds[s].dtype = dtypes[s];
  }
  const penstock_section_bound* sections[2] = {&bounds[0], &bounds[1]};
  penstock_round round{};
  round.struct_size = sizeof round;
  round.sections = lossless ? sections + 1 : sections;
  round.n_sections = lossless ? 1 : 2;
  round.combine = lossless ? PENSTOCK_COMBINE_SUM : PENSTOCK_COMBINE_GATHER;
  round.result = PENSTOCK_RESULT_MEAN;
  const penstock_round* rounds[1] = {&round};
  need.c.rounds = rounds;
  need.c.n_rounds = 1;
  need.c.period = 1;
  need.c.part_alignment = 1;
  if (lossless) need.c.flags = PENSTOCK_NEED_LOSSLESS | PENSTOCK_NEED_LINEAR;
  (void)need.adopt();  // copies the arrays; nothing in them is wrong
}

}  // namespace

Result<std::unique_ptr<MemoryRank>> MemoryRank::make(const Subject& subject, const Shape& shape,
                                                     bool lossless) {
  auto rank = std::unique_ptr<MemoryRank>(new MemoryRank(shape));
  PENSTOCK_ASSIGN(rank->instance_, make_default<penstock_memory>(subject));
  describe_item(rank->item_, shape, "gradient", 0);
  if (lossless) rank->item_.flags = PENSTOCK_ITEM_LOSSLESS;
  PENSTOCK_TRY(rank->plan(lossless));
  return rank;
}

Status MemoryRank::plan(bool lossless) {
  CompressorNeeds compressor;
  describe_need(compressor.emplace_back(), shape_.numel(), lossless);
  PENSTOCK_TRY(ask_needs(*instance_, {&item_}, compressor, needs_));
  const uint64_t n = shape_.numel();
  for (uint64_t s = 0; s < need().n_states; ++s) {
    const penstock_state_declaration& state = *need().states[s];
    states_.emplace_back(state.rows * state.cols * dtype_bytes(state.dtype));
    classes_.push_back(state.state_class);
    keeps_ |= state.state_class == PENSTOCK_STATE_MASS;
    tensors_.push_back(float_tensor(shape_, states_.back().data()));
    tensors_.back().numel = state.rows * state.cols;
    tensors_.back().dtype = state.dtype;
  }
  for (const penstock_tensor& tensor : tensors_) pointers_.push_back(&tensor);
  grad_ = GuardedBuffer(n * sizeof(float));
  scratch_work_ = GuardedBuffer(n * sizeof(float));
  item_.grad.data = item_.out.data = item_.work.data = grad_.data();
  if (need().work_is == PENSTOCK_WORK_IS_SCRATCH) item_.work.data = scratch_work_.data();
  if (need().work_is == PENSTOCK_WORK_IS_STATE) item_.work.data = states_[need().work_state].data();
  if (keeps_in_work()) item_.flags |= PENSTOCK_ITEM_KEEP;
  item_.states = pointers_.data();
  item_.n_states = pointers_.size();
  step_.struct_size = sizeof step_;
  step_.seed = 1;
  step_.world = 1;
  exec_.struct_size = sizeof exec_;
  exec_.device_type = PENSTOCK_DEVICE_CPU;
  sparse_round_.combine = PENSTOCK_COMBINE_GATHER;
  sparse_round_.sections = {{n, PENSTOCK_ROLE_INDICES, PENSTOCK_UINT32, 0, false},
                            {n, PENSTOCK_ROLE_VALUES, PENSTOCK_FLOAT32, 0, false}};
  dense_round_.sections = {{n, PENSTOCK_ROLE_VALUES, PENSTOCK_FLOAT32, 0, true}};
  return {};
}

}  // namespace penstock::command
