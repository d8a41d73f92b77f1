// Methods in the whole engine, compared with their mathematics as plain loops in double: DGC that
// sends every entry is SGD (Lin et al., ICLR 2018), ACP-SGD alternates two projections (Zhang et
// al., ICDCS 2023), signs are decided by majority (Bernstein et al., ICLR 2019).

#include "core/set/training_testing.hpp"

#include <support/low_rank_oracle.hpp>

#include <cmath>
#include <limits>

namespace penstock::methods_test {
namespace {

using testing::descend;
using testing::Doubles;
using testing::kLearningRate;
using testing::make_set;
using testing::numel_of;
using testing::Problem;
using testing::run_step;
using testing::scheme_text;
using testing::train;
using testing::Values;
using testing::with_ranks;

constexpr uint32_t kWorlds[] = {1, 2, 3, 4, 8};
constexpr uint64_t kSteps = 12;
constexpr double kMomentum = 0.9;

const Problem kProblem({{"first.weight", {13, 7}},
                        {"first.bias", {13}},
                        {"second.weight", {5, 3, 3}},
                        {"second.bias", {5}},
                        {"last", {257}}});

// How a gradient becomes an update in SGD.
enum class Momentum { none, heavy_ball, nesterov };

// Plain SGD on exact means; `kind_of(g)` is the momentum of gradient g.
template <typename KindOf>
std::vector<Doubles> plain_sgd(const Problem& problem, uint32_t size, const KindOf& kind_of) {
  Doubles parameters = problem.start(), velocity = parameters;
  for (auto& of_gradient : velocity) of_gradient.assign(of_gradient.size(), 0.0);
  std::vector<Doubles> trajectory;
  for (uint64_t step = 0; step < kSteps; ++step) {
    Doubles update = problem.mean(parameters, size, step);
    for (size_t g = 0; g < update.size(); ++g)
      for (size_t i = 0; i < update[g].size(); ++i) {
        if (kind_of(g) == Momentum::none) continue;
        velocity[g][i] = kMomentum * velocity[g][i] + update[g][i];
        update[g][i] = kind_of(g) == Momentum::heavy_ball
                           ? velocity[g][i]
                           : update[g][i] + kMomentum * velocity[g][i];
      }
    descend(parameters, update);
    trajectory.push_back(parameters);
  }
  return trajectory;
}

void expect_same_path(const std::vector<std::vector<Doubles>>& ranks,
                      const std::vector<Doubles>& expected, const std::string& what) {
  for (const auto& path : ranks) {
    ASSERT_EQ(path.size(), expected.size()) << what;
    for (size_t step = 0; step < path.size(); ++step)
      for (size_t g = 0; g < expected[step].size(); ++g)
        for (size_t i = 0; i < expected[step][g].size(); ++i)
          // Twelve steps of float rounding of numbers up to a hundred. A lost momentum or a wrong
          // factor would change the first digit.
          ASSERT_NEAR(path[step][g][i], expected[step][g][i],
                      2e-6 * (10 + std::abs(expected[step][g][i])))
              << what << ": gradient " << g << "[" << i << "] step " << step;
    EXPECT_EQ(path, ranks[0]) << what << ": ranks differ";
  }
}

std::string dgc(const std::string& memory_options, const std::string& rules = "") {
  return scheme_text("compressor = \"dgc\"\nmemory = \"dgc\"",
                     "[compressor.dgc]\ndensity = 1.0\n[memory.dgc]\nmomentum = 0.9\n" +
                         memory_options + "\n" + rules);
}

TEST(DgcThatSendsEverything, IsSgdWithoutMomentumUnderMasking) {
  for (const uint32_t size : kWorlds)
    expect_same_path(train(size, dgc("momentum_masking = true"), kProblem, kSteps),
                     plain_sgd(kProblem, size, [](size_t) { return Momentum::none; }),
                     fmt::format("{} ranks", size));
}

TEST(DgcThatSendsEverything, IsHeavyBallWithoutMasking) {
  for (const uint32_t size : kWorlds)
    expect_same_path(train(size, dgc("momentum_masking = false"), kProblem, kSteps),
                     plain_sgd(kProblem, size, [](size_t) { return Momentum::heavy_ball; }),
                     fmt::format("{} ranks", size));
}

TEST(DgcThatSendsEverything, IsNesterovWithoutMaskingWhereAsked) {
  for (const uint32_t size : kWorlds)
    expect_same_path(
        train(size, dgc("momentum_masking = false\nnesterov = true"), kProblem, kSteps),
        plain_sgd(kProblem, size, [](size_t) { return Momentum::nesterov; }),
        fmt::format("{} ranks", size));
}

TEST(DgcThatSendsEverything, GivesDenseVectorsTheirMomentumAfterTheMean) {
  // Masking clears the momentum of selected entries. A gradient that a rule sends whole has none.
  const std::string text =
      dgc("momentum_masking = true", "[[rule]]\nmatch = { dims = 1 }\ncompressor = \"none\"\n");
  const auto kind_of = [](size_t g) {
    return kProblem.shapes()[g].shape.size() == 1 ? Momentum::heavy_ball : Momentum::none;
  };
  for (const uint32_t size : kWorlds)
    expect_same_path(train(size, text, kProblem, kSteps), plain_sgd(kProblem, size, kind_of),
                     fmt::format("{} ranks", size));
}

// ---- ACP-SGD ----

using test::oracle::Matrix;

// One matrix on all ranks: the kept values of each rank, and the two factors that alternate.
struct AlternatingFactors {
  AlternatingFactors(uint32_t size, uint64_t rows, uint64_t cols, uint64_t rank, uint64_t seed,
                     uint64_t gradient)
      : kept(size, Matrix(rows, cols)), q(test::oracle::normals(seed, gradient, 1, cols, rank)) {}

  // M_i = kept_i + gradient_i. Even steps: Q = orth(Q), P = sum M_i Q. Odd steps: P = orth(P), Q =
  // sum M_i^T P. The kept matrix is M_i minus its own projection. The update is P Q^T / ranks.
  Matrix step(uint64_t index, const std::vector<Matrix>& gradients) {
    const bool sends_p = index % 2 == 0;
    Matrix& basis = sends_p ? q : p;
    basis = test::oracle::orthonormal(basis);
    Matrix sum;
    for (size_t r = 0; r < gradients.size(); ++r) {
      const Matrix whole = test::oracle::combined(kept[r], 1, gradients[r]);
      const Matrix own =
          test::oracle::product(sends_p ? whole : test::oracle::transposed(whole), basis);
      kept[r] = test::oracle::combined(whole, -1, expand(sends_p, own));
      sum = r == 0 ? own : test::oracle::combined(sum, 1, own);
    }
    Matrix update = expand(sends_p, sum);
    for (double& value : update.entries) value /= double(gradients.size());
    (sends_p ? p : q) = sum;
    return update;
  }
  Matrix expand(bool sends_p, const Matrix& sent) const {
    return sends_p ? test::oracle::product(sent, test::oracle::transposed(q))
                   : test::oracle::product(p, test::oracle::transposed(sent));
  }

  std::vector<Matrix> kept;
  Matrix p, q;
};

const std::vector<testing::GradientShape> kMatrices{{"wide", {6, 31}},
                                                    {"bias", {6}},
                                                    {"tall", {40, 9}},
                                                    {"kernel", {8, 2, 3, 3}},
                                                    {"thin", {1, 12}}};

Values layered(uint32_t rank, uint64_t step) {
  Values gradients;
  for (size_t g = 0; g < kMatrices.size(); ++g) {
    const auto view = test::oracle::view_of(kMatrices[g].shape);
    gradients.push_back(
        test::oracle::layered_gradient(view.rows, view.cols, 3, rank + 100 * g, step));
  }
  return gradients;
}

TEST(AcpSgdInTheEngine, IsItsTwoAlternatingProjections) {
  constexpr uint64_t kSeed = 42;
  constexpr uint64_t kRank = 3;
  for (const uint32_t size : kWorlds)
    // The second limit gives several buckets, which differ between the two phases.
    for (const char* threshold : {"26214400", "512"}) {
      const std::string text =
          scheme_text("compressor = \"acpsgd\"\nmemory = \"residual\"",
                      fmt::format("seed = {}\n[compressor.acpsgd]\nrank = {}\n[scheduler.fusion]\n"
                                  "threshold_bytes = {}\n",
                                  kSeed, kRank, threshold));
      std::vector<Values> updates(10);
      with_ranks(size, text, [&](Runtime& runtime, uint32_t rank) {
        auto set = make_set(runtime, kMatrices);
        ASSERT_OK(set.status());
        for (uint64_t step = 0; step < updates.size(); ++step) {
          Values gradients = layered(rank, step);
          ASSERT_OK(run_step(*set.value(), gradients));
          if (rank == 0) updates[step] = gradients;
        }
      });
      for (size_t g = 0; g < kMatrices.size(); ++g) {
        const auto view = test::oracle::view_of(kMatrices[g].shape);
        AlternatingFactors factors(size, view.rows, view.cols,
                                   std::min({kRank, view.rows, view.cols}), kSeed, g);
        for (uint64_t step = 0; step < updates.size(); ++step) {
          std::vector<Matrix> own;
          for (uint32_t r = 0; r < size; ++r)
            own.emplace_back(view.rows, view.cols, layered(r, step)[g]);
          Matrix expected(view.rows, view.cols);
          if (kMatrices[g].shape.size() > 1)
            expected = factors.step(step, own);
          else  // vectors are sent whole
            for (const Matrix& one : own)
              expected = test::oracle::combined(expected, 1.0 / size, one);
          // Float rounding of products over at most 40 terms, which ten steps carry along.
          const double tolerance = 2e-5 * test::oracle::largest(expected.entries);
          for (size_t i = 0; i < expected.entries.size(); ++i)
            ASSERT_NEAR(updates[step][g][i], expected.entries[i], tolerance)
                << kMatrices[g].name << "[" << i << "] step " << step << " on " << size
                << " ranks, threshold " << threshold;
        }
      }
    }
}

// ---- signs ----

// Gradients with zeros of both signs, and entries on which the ranks are evenly split.
Values signed_gradients(const Doubles& parameters, uint32_t rank, uint64_t step) {
  Values gradients = kProblem.gradients(parameters, rank, step);
  for (auto& values : gradients)
    for (size_t i = 0; i < values.size(); ++i) {
      if ((i + step + rank) % 5 == 0) values[i] = i % 2 == 0 ? 0.0f : -0.0f;
      if (i % 11 == 3) values[i] = rank % 2 == 0 ? 0.25f : -4.0f;
    }
  return gradients;
}

TEST(SignsInTheEngine, AreDecidedByTheMajorityStepByStep) {
  for (const uint32_t size : kWorlds)
    for (const char* scheduler : {"fusion", "wfbp"}) {
      const std::string text = scheme_text(fmt::format(
          "compressor = \"signsgd\"\nmemory = \"none\"\nscheduler = \"{}\"", scheduler));
      std::vector<std::vector<Doubles>> paths(size);
      with_ranks(size, text, [&](Runtime& runtime, uint32_t rank) {
        auto set = make_set(runtime, kProblem.shapes());
        ASSERT_OK(set.status());
        Doubles parameters = kProblem.start();
        for (uint64_t step = 0; step < kSteps; ++step) {
          Values gradients = signed_gradients(parameters, rank, step);
          ASSERT_OK(run_step(*set.value(), gradients));
          descend(parameters, gradients);
          paths[rank].push_back(parameters);
        }
      });
      Doubles parameters = kProblem.start();
      for (uint64_t step = 0; step < kSteps; ++step) {
        Doubles votes;
        for (const auto& shape : kProblem.shapes()) votes.emplace_back(numel_of(shape), 0.0);
        for (uint32_t rank = 0; rank < size; ++rank) {
          const Values own = signed_gradients(parameters, rank, step);
          for (size_t g = 0; g < own.size(); ++g)
            for (size_t i = 0; i < own[g].size(); ++i)
              votes[g][i] += double(own[g][i] > 0) - double(own[g][i] < 0);
        }
        for (auto& of_gradient : votes)
          for (double& vote : of_gradient) vote = double(vote > 0) - double(vote < 0);
        descend(parameters, votes);
        // Votes are -1, 0 or 1, so they are exact.
        for (uint32_t rank = 0; rank < size; ++rank)
          ASSERT_EQ(paths[rank].at(step), parameters)
              << "rank " << rank << " of " << size << ", step " << step << ", " << scheduler;
      }
    }
}

}  // namespace
}  // namespace penstock::methods_test
