// Planning a memory on the simulated rank: storage and states as its need asks for.
#include "tools/penstock/check_memory_rank.hpp"

namespace penstock::command {

namespace {

constexpr uint64_t kMostScalars = 8;

// What a sparse compressor, or one that loses nothing, says of an item.
struct CompressorNeeds {
  explicit CompressorNeeds(uint64_t numel, bool lossless) {
    const uint32_t roles[] = {PENSTOCK_ROLE_INDICES, PENSTOCK_ROLE_VALUES};
    const uint32_t dtypes[] = {PENSTOCK_UINT32, PENSTOCK_FLOAT32};
    for (int s = 0; s < 2; ++s) {
      bounds[s].struct_size = sizeof bounds[s];
      bounds[s].capacity = numel;
      bounds[s].role = roles[s];
      bounds[s].dtype = dtypes[s];
    }
    round.struct_size = sizeof round;
    round.sections = lossless ? sections + 1 : sections;
    round.n_sections = lossless ? 1 : 2;
    round.combine = lossless ? PENSTOCK_COMBINE_SUM : PENSTOCK_COMBINE_GATHER;
    round.result = PENSTOCK_RESULT_MEAN;
    need.struct_size = sizeof need;
    need.rounds = rounds;
    need.n_rounds = 1;
    need.period = 1;
    need.part_alignment = 1;
    if (lossless) need.flags = PENSTOCK_NEED_LOSSLESS | PENSTOCK_NEED_LINEAR;
  }
  penstock_section_bound bounds[2] = {};
  const penstock_section_bound* sections[2] = {&bounds[0], &bounds[1]};
  penstock_round round{};
  const penstock_round* rounds[1] = {&round};
  penstock_compressor_need need{};
};

}  // namespace

Result<std::unique_ptr<MemoryRank>> MemoryRank::make(const Subject& subject, const Shape& shape,
                                                     bool lossless) {
  auto rank = std::unique_ptr<MemoryRank>(new MemoryRank(shape));
  PENSTOCK_ASSIGN(rank->instance_, make_default<penstock_memory>(subject));
  describe_item(rank->item_, shape, "gradient", 0);
  if (lossless) rank->item_.flags = PENSTOCK_ITEM_LOSSLESS;
  const CompressorNeeds compressor(shape.numel(), lossless);
  PENSTOCK_TRY(rank->plan(compressor.need));
  return rank;
}

Status MemoryRank::plan(const penstock_compressor_need& compressor) {
  need_.struct_size = sizeof need_;
  penstock_memory_need* needs[] = {&need_};
  const penstock_compressor_need* compressor_needs[] = {&compressor};
  const penstock_memory& table = *instance_->table();
  PENSTOCK_TRY(from_c(table.plan(instance_->self(), items_, 1, compressor_needs, needs))
                   .with_context("plan"));
  const uint64_t n = shape_.numel();
  for (uint64_t s = 0; s < need_.n_states; ++s) {
    const penstock_state_declaration& state = *need_.states[s];
    states_.emplace_back(state.rows * state.cols * dtype_bytes(state.dtype));
    classes_.push_back(state.state_class);
    keeps_ |= state.state_class == PENSTOCK_STATE_MASS;
    tensors_.push_back(float_tensor(shape_, states_.back().data()));
    tensors_.back().numel = state.rows * state.cols;
    tensors_.back().dtype = state.dtype;
  }
  for (const penstock_tensor& tensor : tensors_) pointers_.push_back(&tensor);
  if (keeps_ && (!PENSTOCK_HAS_MEMBER(&table, penstock_memory, give_back) ||
                 !PENSTOCK_HAS_MEMBER(&table, penstock_memory, drain)))
    return internal("it keeps mass and must have give_back and drain");
  if (need_.n_scalars > kMostScalars ||
      (need_.n_scalars > 0 && !PENSTOCK_HAS_MEMBER(&table, penstock_memory, measure)))
    return internal("it asks for {} scalars, expected at most {} and a member measure",
                    need_.n_scalars, kMostScalars);
  grad_ = GuardedBuffer(n * sizeof(float));
  scratch_work_ = GuardedBuffer(n * sizeof(float));
  item_.grad.data = item_.out.data = item_.work.data = grad_.data();
  if (need_.work_is == PENSTOCK_WORK_IS_SCRATCH) item_.work.data = scratch_work_.data();
  if (need_.work_is == PENSTOCK_WORK_IS_STATE) {
    if (need_.work_state >= states_.size() || states_[need_.work_state].bytes() != grad_.bytes())
      return internal("work is state {}, which is no float32 state of the gradient's size",
                      need_.work_state);
    item_.work.data = states_[need_.work_state].data();
  }
  const bool momentum =
      need_.form == PENSTOCK_FORM_HEAVY_BALL || need_.form == PENSTOCK_FORM_NESTEROV;
  if (momentum && (need_.momentum_state >= states_.size() ||
                   states_[need_.momentum_state].bytes() != grad_.bytes()))
    return internal("momentum is state {}, which is no float32 state of the gradient's size",
                    need_.momentum_state);
  if (need_.work_is != PENSTOCK_WORK_IS_GRAD) item_.flags |= PENSTOCK_ITEM_KEEP;
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
