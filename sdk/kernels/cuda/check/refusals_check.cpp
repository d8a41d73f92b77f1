// Arguments that break a contract are refused before anything is queued.
#include <kernels/cuda/check/check.hpp>
#include <kernels/cuda/rows.hpp>
#include <kernels/cuda/select.hpp>
#include <kernels/cuda/sign.hpp>
#include <kernels/cuda/stochastic.hpp>
#include <kernels/cuda/values.hpp>

namespace penstock::kernels::cuda::check {

void check_refusals() {
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
  REQUIRE(
      select_rows(x.data(), 10, 10, 11, indices.data(), nullptr, nullptr) == cudaErrorInvalidValue,
      "more than a row has");
  REQUIRE(majority_vote(nullptr, kMaxVoters + 1, 100, x.data(), nullptr) == cudaErrorInvalidValue,
          "voters");
  REQUIRE(pack_bits(nullptr, 100, 9, words.data(), nullptr) == cudaErrorInvalidValue, "nine bits");
  REQUIRE(sum_valued_signs(nullptr, 0, 100, 63, true, x.data(), nullptr) == cudaErrorInvalidValue,
          "a run of no whole words");
}

}  // namespace penstock::kernels::cuda::check
