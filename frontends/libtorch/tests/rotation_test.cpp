// The order of exchanges and the layers of a model, for ranks that train apart.

#include <optional>
#include <vector>

#include "../source/apart/layers.hpp"
#include "../source/apart/rotation.hpp"
#include "testing.hpp"

namespace penstock::torch::testing {
namespace {

TEST(LibtorchRotation, EachFragmentStartsOnceInARoundAndLandsBeforeTheNextStarts) {
  const std::vector<std::vector<std::int64_t>> ways{{1, 1, 0}, {30, 1, 29}, {12, 3, 3}, {7, 3, 1}};
  for (const auto& way : ways) {
    const std::int64_t every = way[0], fragments = way[1], delay = way[2];
    const Rotation rotation(every, fragments, delay);
    std::int64_t n_starts = 0, started_at = 0;
    std::optional<std::size_t> under_way;
    for (std::int64_t step = 1; step <= 5 * every; ++step) {
      // The plain rule: fragment f starts where (step mod every) is (f + 1) every / fragments.
      std::optional<std::size_t> starts;
      for (std::int64_t f = 0; f < fragments; ++f)
        if (((f + 1) * every / fragments) % every == step % every)
          starts = static_cast<std::size_t>(f);
      EXPECT_EQ(rotation.starting(step), starts);
      if (rotation.landing(step) && delay > 0) {
        EXPECT_EQ(rotation.landing(step), under_way);
        EXPECT_EQ(step - started_at, delay);
        under_way.reset();
      }
      if (!starts) continue;
      EXPECT_FALSE(under_way) << "an exchange started while another one was under way";
      EXPECT_EQ(*starts, static_cast<std::size_t>(n_starts++ % fragments));
      if (delay == 0) {
        EXPECT_EQ(rotation.landing(step), starts);
      } else {
        under_way = starts;
        started_at = step;
      }
    }
    EXPECT_EQ(n_starts, 5 * fragments);
  }
}

TEST(LibtorchRotation, NothingLandsBeforeItHasStarted) {
  const Rotation rotation(2, 1, 1);
  EXPECT_FALSE(rotation.landing(1) || rotation.landing(2) || rotation.landing(4));
  EXPECT_EQ(rotation.landing(3), std::size_t{0});
}

TEST(LibtorchRotation, ALayerEndsAtTheFirstNumberOfTheName) {
  EXPECT_EQ(layer_of("blocks.3.mlp.weight"), "blocks.3");
  EXPECT_EQ(layer_of("module.layers.11.attn.0.bias"), "module.layers.11");
  EXPECT_EQ(layer_of("0.weight"), "0");
  EXPECT_EQ(layer_of("embed.weight"), "embed");
  EXPECT_EQ(layer_of("scale"), "scale");
  EXPECT_EQ(layer_of("a..b"), "a.");
  EXPECT_EQ(layer_of(".b"), ".b");
}

TEST(LibtorchRotation, LayersGoToFragmentsInTurnWithAllTheirParameters) {
  using Parts = std::vector<std::vector<std::size_t>>;
  const std::vector<std::string> names{"embed.w", "b.0.w", "b.0.v", "b.1.w",
                                       "b.2.w",   "b.1.v", "head.w"};
  EXPECT_EQ(fragments_of(names, 2), (Parts{{0, 3, 5, 6}, {1, 2, 4}}));
  EXPECT_EQ(fragments_of(names, 1), (Parts{{0, 1, 2, 3, 4, 5, 6}}));
  expect_error(PENSTOCK_INVALID_ARGUMENT,
               "form 5 layers (embed, b.0, b.1, b.2), expected a layer or more for each fragment: "
               "lower fragments to 5 or less",
               [&] { fragments_of(names, 6); });
}

}  // namespace
}  // namespace penstock::torch::testing
