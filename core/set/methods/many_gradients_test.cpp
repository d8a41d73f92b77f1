// Sets of many small gradients: the time to make a set grows with the number of gradients, and not
// with its square.

#include "core/set/testing.hpp"

#include <ctime>

namespace penstock::many_gradients_test {
namespace {

using testing::make_set;
using testing::scheme_text;
using testing::with_ranks;

// Processor time of all threads, which does not depend on other load on the machine.
double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return double(now.tv_sec) + 1e-9 * double(now.tv_nsec);
}

double time_of_making(const std::string& scheduler, size_t n_gradients) {
  std::vector<testing::GradientShape> shapes;
  for (size_t i = 0; i < n_gradients; ++i) shapes.push_back({fmt::format("layer.{}", i), {4}});
  double took = 0;
  with_ranks(1,
             scheme_text(fmt::format(
                 "compressor = \"topk\"\nmemory = \"residual\"\nscheduler = \"{}\"", scheduler)),
             [&](Runtime& runtime, uint32_t) {
               const double start = processor_seconds();
               auto set = make_set(runtime, shapes);
               ASSERT_OK(set.status());
               took = processor_seconds() - start;
             });
  return took;
}

TEST(ManyGradients, TakeATimeThatGrowsWithTheirNumber) {
  for (const char* scheduler : {"fusion", "wfbp"}) {
    (void)time_of_making(scheduler, 200);  // loads the plugins
    const double few = time_of_making(scheduler, 1000), many = time_of_making(scheduler, 8000);
    // Eight times as many gradients. A quadratic time would be 64 times as long.
    EXPECT_LT(many, 24 * few) << scheduler << ": " << few << " s and " << many << " s";
  }
}

}  // namespace
}  // namespace penstock::many_gradients_test
