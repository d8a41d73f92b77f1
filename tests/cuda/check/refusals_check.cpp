// Arguments that break a contract are refused before work is queued.
#include <penstock/memory.h>
#include <kernels/cuda/clipping.hpp>
#include <kernels/cuda/loading.hpp>
#include <kernels/cuda/low_rank.hpp>
#include <kernels/cuda/one_sign.hpp>
#include <kernels/cuda/reusing.hpp>
#include <kernels/cuda/rows.hpp>
#include <kernels/cuda/select.hpp>
#include <kernels/cuda/sign.hpp>
#include <kernels/cuda/stochastic.hpp>
#include <kernels/cuda/values.hpp>
#include "check.hpp"

namespace penstock::kernels::cuda::check {
namespace {

void refuse_low_rank() {
  Array<float> m(4096), p(4096), q(4096);
  const low_rank::Shape good{2, 2000, 1};
  const uint64_t bytes = low_rank::multiply_workspace_bytes(good);
  REQUIRE(bytes > 0, "a sum that is cut");
  Scratch scratch(bytes);
  const auto refused = [&](const low_rank::Shape& shape, const float* factor, Workspace workspace,
                           const Fold* fold, const char* why) {
    REQUIRE(low_rank::multiply(shape, m.data(), factor, p.data(), workspace, nullptr, fold) ==
                cudaErrorInvalidValue,
            why);
    REQUIRE(
        low_rank::multiply_transposed({shape.cols, shape.rows, shape.rank}, m.data(), factor,
                                      p.data(), workspace, nullptr, fold) == cudaErrorInvalidValue,
        why);
  };
  for (const uint64_t rank : {uint64_t{0}, uint64_t{low_rank::kMostRank + 1}, ~uint64_t{0}}) {
    const low_rank::Shape shape{2, 2, rank};
    refused(shape, q.data(), scratch.get(), nullptr, "rank");
    REQUIRE(low_rank::multiply_workspace_bytes(shape) == 0, rank);
    REQUIRE(
        low_rank::expand(shape, p.data(), q.data(), 1, m.data(), nullptr) == cudaErrorInvalidValue,
        rank);
    REQUIRE(
        low_rank::take_out(shape, m.data(), p.data(), q.data(), nullptr) == cudaErrorInvalidValue,
        rank);
  }
  refused(good, nullptr, scratch.get(), nullptr, "no factor");
  refused(good, q.data(), {scratch.get().data, bytes - 1}, nullptr, "a workspace too small");
  refused(good, q.data(), {nullptr, bytes}, nullptr, "no workspace");
  refused(good, q.data(), {static_cast<char*>(scratch.get().data) + 8, bytes}, nullptr,
          "a crooked workspace");
  const Fold elsewhere{PENSTOCK_FORM_AFFINE, 1, 1, 1, q.data(), p.data(), nullptr};
  refused(good, q.data(), scratch.get(), &elsewhere, "a fold of another matrix");
  const Fold incomplete{PENSTOCK_FORM_NESTEROV, 1, 1, 1, q.data(), m.data(), nullptr};
  refused(good, q.data(), scratch.get(), &incomplete, "a fold without its momentum");
}

void refuse_orthogonalise() {
  Array<float> p(100);
  Array<uint64_t> zeros(1);
  const uint64_t bytes = low_rank::orthogonalise_workspace_bytes(50, 2);
  Scratch scratch(bytes);
  const auto refused = [&](float* factor, uint64_t rank, Workspace workspace, const char* why) {
    REQUIRE(low_rank::orthogonalise(factor, 50, rank, zeros.data(), workspace, nullptr) ==
                cudaErrorInvalidValue,
            why);
  };
  refused(p.data(), 0, scratch.get(), "rank");
  refused(p.data(), low_rank::kMostRank + 1, scratch.get(), "rank");
  refused(nullptr, 2, scratch.get(), "no factor");
  refused(p.data(), 2, {scratch.get().data, bytes - 1}, "a workspace too small");
  refused(p.data(), 2, {nullptr, bytes}, "no workspace");
  refused(p.data(), 2, {static_cast<char*>(scratch.get().data) + 8, bytes}, "a crooked workspace");
}

void refuse_signs() {
  Array<float> x(100);
  const std::vector<Signs> voters(kMostSenders + 1);
  const std::vector<ValuedSigns> senders(kMostSenders + 1);
  REQUIRE(majority_vote(voters, {}, 100, 1, x.data(), nullptr) == cudaErrorInvalidValue, "voters");
  REQUIRE(sum_valued_signs(senders, 100, {64, true}, true, 1, x.data(), nullptr) ==
              cudaErrorInvalidValue,
          "senders");
  for (const uint64_t run : {0, 63}) {
    REQUIRE(
        sum_valued_signs({}, 100, {run, true}, true, 1, x.data(), nullptr) == cudaErrorInvalidValue,
        "a run of no whole words", run);
    REQUIRE(
        take_out_by_sign(x.data(), 100, {run, true}, x.data(), nullptr) == cudaErrorInvalidValue,
        "a run of no whole words", run);
  }

  Array<uint64_t> planes(4), counts(2);
  Array<uint32_t> zeros(3);
  const uint64_t bytes = pack_signs_workspace_bytes(100);
  Scratch scratch(bytes);
  const SignRoom good{planes.data(),     zeros.data(),  3,
                      planes.data() + 2, counts.data(), counts.data() + 1};
  const auto refused = [&](const SignRoom& room, Workspace workspace, const Fold* fold,
                           const char* why) {
    REQUIRE(pack_signs(x.data(), 100, room, workspace, nullptr, fold) == cudaErrorInvalidValue,
            why);
  };
  SignRoom room = good;
  room.nonzero = nullptr;
  refused(room, scratch.get(), nullptr, "no second plane");
  room = good;
  room.n_nonzero = nullptr;
  refused(room, scratch.get(), nullptr, "no count");
  room = good;
  room.zeros = nullptr;
  refused(room, scratch.get(), nullptr, "no list");
  refused(good, {scratch.get().data, bytes - 1}, nullptr, "a workspace too small");
  refused(good, {nullptr, bytes}, nullptr, "no workspace");
  Array<float> other(100);
  const Fold elsewhere{PENSTOCK_FORM_AFFINE, 1, 1, 1, x.data(), other.data(), nullptr};
  refused(good, scratch.get(), &elsewhere, "a fold of another array");
}

void refuse_requests() {
  Array<float> x(100), other(100);
  Array<uint32_t> indices(200);
  Array<uint64_t> count(1);
  const uint64_t bytes = 2 * select_workspace_bytes(100, 10);
  Scratch scratch(bytes);
  const SelectRequest good{x.data(), 100, 10, indices.data(), nullptr};
  const SelectRequest also{other.data(), 100, 10, indices.data() + 100, nullptr};
  const auto refused = [&](const SelectRequest& request, uint64_t workspace_bytes,
                           const char* why) {
    const SelectRequest both[] = {request, also};
    REQUIRE(select(both, {scratch.get().data, workspace_bytes}, nullptr) == cudaErrorInvalidValue,
            why);
  };
  refused(good, bytes - 1, "a workspace for two that is too small");
  SelectRequest request = good;
  request.work = other.data();
  refused(request, bytes, "taken out of another array");
  request = good;
  request.indices = nullptr;
  refused(request, bytes, "no indices");
  request = good;
  request.least = request.instead = 1;
  refused(request, bytes, "at least so many, and no count");
  request.count = count.data();
  request.instead = 11;
  refused(request, bytes, "instead of few more than there is room for");
  request = good;
  request.fold = {PENSTOCK_FORM_AFFINE, 1, 1, 1, other.data(), other.data(), nullptr};
  refused(request, bytes, "a fold of another array");
}

void refuse_clipping() {
  Array<float> x(100), work(100), result(1);
  const uint64_t bytes = square_norm_workspace_bytes(100);
  Scratch scratch(bytes);
  const auto refused = [&](float* to, const Workspace& workspace, const Fold& fold,
                           const char* why) {
    REQUIRE(square_norm(x.data(), 100, 1, to, workspace, nullptr) == cudaErrorInvalidValue, why);
    REQUIRE(
        compensate_clipped_to_norm(fold, 1, 1, 100, workspace, nullptr) == cudaErrorInvalidValue,
        why);
  };
  const Fold good{PENSTOCK_FORM_AFFINE, 1, 1, 1, x.data(), work.data(), nullptr};
  const Fold incomplete{PENSTOCK_FORM_NESTEROV, 1, 1, 1, x.data(), work.data(), nullptr};
  refused(result.data(), {scratch.get().data, bytes - 1}, good, "a workspace too small");
  refused(result.data(), {nullptr, bytes}, good, "no workspace");
  refused(nullptr, scratch.get(), incomplete, "no result, no momentum");
  REQUIRE(compensate_clipped(incomplete, {}, 100, nullptr) == cudaErrorInvalidValue, "no momentum");
}

void refuse_means() {
  Array<float> work(4), mean(1);
  Array<uint32_t> indices(4);
  Array<double> sum(1);
  const ChosenEntries good{work.data(), indices.data(), nullptr, 4};
  const auto refused = [&](const ChosenEntries& chosen, const double* of, float* to,
                           const char* why) {
    REQUIRE(take_mean(chosen, of, false, true, to, nullptr) == cudaErrorInvalidValue, why);
  };
  refused({work.data(), indices.data(), nullptr, 0}, sum.data(), mean.data(), "no room");
  refused({work.data(), nullptr, nullptr, 4}, sum.data(), mean.data(), "no indices");
  refused(good, nullptr, mean.data(), "no sum");
  refused(good, sum.data(), nullptr, "no mean");
  REQUIRE(magnitudes_of_sign(nullptr, 4, false, work.data(), nullptr) == cudaErrorInvalidValue,
          "no array");
}

void refuse_reuse() {
  Array<float> state(5);
  Array<uint32_t> rows(4), indices(4);
  Array<uint64_t> count(1);
  Array<Reusing> reusing(1);
  const ReuseRules rules{1, 1, 5, false, false};
  REQUIRE(begin_reuse(rules, nullptr, reusing.data(), nullptr) == cudaErrorInvalidValue,
          "no state");
  REQUIRE(end_reuse(rules, nullptr, state.data(), nullptr) == cudaErrorInvalidValue,
          "no numbers of the step");
  REQUIRE(replace_by_rows(reusing.data(), rows.data(), 0, indices.data(), count.data(), nullptr) ==
              cudaErrorInvalidValue,
          "no rows");
  REQUIRE(replace_by_rows(reusing.data(), rows.data(), 4, indices.data(), nullptr, nullptr) ==
              cudaErrorInvalidValue,
          "no count");
}

}  // namespace

void check_refusals() {
  const char* why = "";
  REQUIRE(load_kernels(0, &why) == cudaSuccess, why);
  REQUIRE(load_kernels(-1, &why) == cudaErrorInvalidDevice, why);
  refuse_reuse();
  refuse_means();
  refuse_clipping();
  refuse_low_rank();
  refuse_orthogonalise();
  Array<float> x(100);
  Array<uint32_t> indices(100);
  Array<uint64_t> words(100);
  const uint64_t bytes = select_workspace_bytes(100, 10);
  Scratch scratch(bytes);
  const Workspace small{scratch.get().data, bytes - 1};
  const Workspace crooked{static_cast<char*>(scratch.get().data) + 8, bytes};
  for (const Workspace& workspace : {small, crooked, Workspace{nullptr, bytes}})
    REQUIRE(select_largest(x.data(), 100, 10, indices.data(), nullptr, workspace, nullptr) ==
                cudaErrorInvalidValue,
            "workspace");
  REQUIRE(select_largest(x.data(), 10, 11, indices.data(), nullptr, scratch.get(), nullptr) ==
              cudaErrorInvalidValue,
          "more than there are");
  REQUIRE(select_largest(x.data(), uint64_t{1} << 32, 1, indices.data(), nullptr, scratch.get(),
                         nullptr) == cudaErrorInvalidValue,
          "too many for 32-bit indices");
  refuse_requests();
  REQUIRE(
      select_rows(x.data(), 10, 10, 11, indices.data(), nullptr, nullptr) == cudaErrorInvalidValue,
      "more than a row has");
  refuse_signs();
  REQUIRE(pack_bits(nullptr, 100, 9, words.data(), nullptr) == cudaErrorInvalidValue, "nine bits");
}

}  // namespace penstock::kernels::cuda::check
