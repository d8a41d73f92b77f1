// The items of a bucket: the owners of the parts of its pieces.

#include "core/bucket/items.hpp"

#include "core/bucket/testing.hpp"
#include "core/plugin/testing.hpp"

namespace penstock::items_test {
namespace {

using testing::PaperBucket;
using testing::ranks_on_one_host;

// Gradients of 100 000, 10 and 0 elements, with plugins of tests/plugins: a compressor that gathers
// or sums, and a memory that keeps values. The first gradient is cut at the begin of its second
// owner's part, and within the last owner's part.
struct Pieces : PaperBucket {
  Pieces(uint32_t route, uint32_t rank, const std::vector<uint32_t>& hosts, bool gathers = true)
      : PaperBucket(route, rank, hosts) {
    bucket.codings.clear();
    folder.add(gathers ? "absent" : "identity", "a.so");
    folder.add("keep", "b.so");
    EXPECT_TRUE(registry.scan().ok());
    std::vector<ChosenGradient> chosen;
    Scheme scheme;
    scheme.scheduler.clear();
    scheme.compressor = "identity-c";
    scheme.memory = "keep-c";
    for (const auto& [kind, name] :
         {std::pair(Kind::compressor, scheme.compressor), std::pair(Kind::memory, scheme.memory)})
      scheme.instances[{kind, name}] = {kind, name, name, {}, {"test", 0, 0}};
    for (const auto& [name, numel] :
         {std::pair("large", 100'000), std::pair("small", 10), std::pair("empty", 0)})
      gradients.emplace_back(DeclaredGradient(name, gradients.size(), {numel}));
    for (const Gradient& gradient : gradients)
      chosen.push_back({&gradient, {scheme.compressor, scheme.memory, {}}});
    auto made =
        BoundScheme::make(scheme, chosen, registry,
                          {.world = context.world, .owners_per_host = context.owners_per_host});
    EXPECT_TRUE(made.ok()) << made.status().message();
    bound_scheme = made.value();
    const uint64_t cut = bound_scheme->ownership(PENSTOCK_ROUTE_SHARD)[0][1].first;
    for (const planning::Piece& piece : {planning::Piece{0, 0, cut, 0},
                                         {2, 0, 0, 0},
                                         {0, cut, 80'000 - cut, 0},
                                         {0, 80'000, 20'000, 0},
                                         {1, 0, 10, 0}}) {
      PieceRun& run = bucket.pieces.emplace_back();
      run.gradient = &gradients[piece.gradient];
      run.place = &context.host;
      run.piece = piece;
    }
  }

  struct Owned {
    size_t piece;
    uint64_t first, numel;
    uint32_t owner;
    bool operator==(const Owned&) const = default;
  };
  // Element by element: an item begins at each change of the owner.
  std::vector<Owned> owned() const {
    std::vector<Owned> all;
    for (size_t p = 0; p < bucket.pieces.size(); ++p) {
      const planning::Piece& piece = bucket.pieces[p].piece;
      const auto& ranges = bound_scheme->ownership(bucket.plan.route)[piece.gradient];
      std::vector<uint32_t> owner_of(gradients[piece.gradient].numel);
      for (const OwnedRange& range : ranges)
        for (uint64_t i = 0; i < range.numel; ++i) owner_of[range.first + i] = range.owner;
      if (owner_of.empty()) all.push_back({p, 0, 0, ranges[0].owner});
      for (uint64_t i = piece.first; i < piece.first + piece.numel; ++i) {
        if (i == piece.first || owner_of[i] != owner_of[i - 1])
          all.push_back({p, i, 0, owner_of[i]});
        ++all.back().numel;
      }
    }
    return all;
  }
  std::vector<Owned> items(size_t number) {
    std::vector<Owned> all;
    for (const ItemRun& item : coding(number).items) {
      size_t piece = 0;
      while (item.of != &bucket.pieces[piece]) ++piece;
      EXPECT_EQ(item.gradient, item.of->gradient);
      all.push_back({piece, item.range.first, item.range.numel, item.owner});
    }
    return all;
  }

  test::PrivateFolder folder;
  test::TestHost host;
  Registry registry{host.host.table(), {{folder.path()}, false}};
  std::shared_ptr<const BoundScheme> bound_scheme;
};

TEST(Items, AreThePiecesWhereNobodyOwnsThem) {
  Pieces pieces(PENSTOCK_ROUTE_FLAT, 1, ranks_on_one_host(3));
  make_codings(pieces.bucket, *pieces.bound_scheme);
  ASSERT_EQ(pieces.bucket.codings.size(), 1u);
  ASSERT_EQ(pieces.items(0).size(), 5u);
  for (size_t p = 0; p < 5; ++p) {
    const planning::Piece& piece = pieces.bucket.pieces[p].piece;
    EXPECT_EQ(pieces.items(0)[p], (Pieces::Owned{p, piece.first, piece.numel, 0}));
  }
  const ItemRun& second_part = pieces.coding().items[2];
  EXPECT_TRUE(second_part.encodes && second_part.decodes);
  EXPECT_EQ(second_part.extent, (ElementRange{0, 100'000}));
}

TEST(Items, OfShardAreWhatEachOwnerHasOfEachPiece) {
  for (uint32_t rank = 0; rank < 3; ++rank) {
    Pieces pieces(PENSTOCK_ROUTE_SHARD, rank, ranks_on_one_host(3));
    make_codings(pieces.bucket, *pieces.bound_scheme);
    ASSERT_EQ(pieces.bucket.codings.size(), 2u);
    const auto owned = pieces.owned();
    EXPECT_EQ(owned.size(), 6u);  // the third piece has two owners
    EXPECT_EQ(pieces.items(0), owned);
    EXPECT_EQ(pieces.items(1), owned);
    EXPECT_TRUE(pieces.coding(0).to_owners);
    EXPECT_TRUE(pieces.coding(1).of_sums);
    for (size_t i = 0; i < owned.size(); ++i) {
      const ItemRun& part = pieces.coding(0).items[i];
      const ItemRun& sum = pieces.coding(1).items[i];
      const bool is_mine = owned[i].owner == rank;
      EXPECT_TRUE(part.encodes && sum.decodes) << i;
      EXPECT_EQ(part.decodes, is_mine) << i;
      EXPECT_EQ(sum.encodes, is_mine) << i;
      EXPECT_EQ(part.sum, &sum) << i;
      EXPECT_EQ(sum.sum_of, &part) << i;
      EXPECT_EQ(part.extent, (ElementRange{0, part.gradient->numel})) << i;
    }
  }
}

TEST(Items, OfShardThatAreSummedNeedNoOwner) {
  Pieces pieces(PENSTOCK_ROUTE_SHARD, 2, ranks_on_one_host(3), false);
  make_codings(pieces.bucket, *pieces.bound_scheme);
  EXPECT_EQ(pieces.items(0).size(), 5u);
  EXPECT_TRUE(pieces.items(1).empty());
}

TEST(Items, OfShardEndAtTheirOwnersWhereResultsStayThere) {
  Pieces pieces(PENSTOCK_ROUTE_SHARD, 0, ranks_on_one_host(3));
  pieces.bucket.ends_at_owners = true;
  make_codings(pieces.bucket, *pieces.bound_scheme);
  ASSERT_EQ(pieces.bucket.codings.size(), 1u);
  for (const ItemRun& item : pieces.coding().items) EXPECT_EQ(item.sum, nullptr);
}

TEST(Items, OfHostsAreExchangedByTheirOwnersAlone) {
  for (uint32_t rank = 0; rank < 4; ++rank) {
    Pieces pieces(PENSTOCK_ROUTE_HIERARCHICAL, rank, {0, 0, 1, 1});
    make_codings(pieces.bucket, *pieces.bound_scheme);
    ASSERT_EQ(pieces.bucket.codings.size(), 1u);
    EXPECT_EQ(pieces.coding().leg, 1u);
    EXPECT_EQ(pieces.coding().links, &pieces.context.at(PENSTOCK_LEVEL_CROSS));
    const auto owned = pieces.owned();
    EXPECT_EQ(pieces.items(0), owned);
    for (size_t i = 0; i < owned.size(); ++i) {
      const ItemRun& item = pieces.coding().items[i];
      EXPECT_EQ(item.encodes, owned[i].owner == rank % 2) << i;
      EXPECT_EQ(item.decodes, item.encodes) << i;
    }
  }
}

TEST(Items, HaveStatesOnlyWhereTheyAreEncoded) {
  for (uint32_t rank = 0; rank < 3; ++rank) {
    Pieces pieces(PENSTOCK_ROUTE_SHARD, rank, ranks_on_one_host(3));
    make_codings(pieces.bucket, *pieces.bound_scheme);
    ScratchNeed scratch;
    for (size_t c = 0; c < 2; ++c)
      ASSERT_OK(plan_items(pieces.bucket, pieces.coding(c), pieces.states, scratch));
    uint64_t kept = 100'010;  // of the sent values, then plus the owned values
    for (const Pieces::Owned& owned : pieces.owned())
      if (owned.owner == rank) kept += owned.numel;
    EXPECT_EQ(pieces.states.bytes(), kept * sizeof(float));
    for (const ItemRun& item : pieces.coding(1).items)
      EXPECT_EQ(item.memory_states.size(), item.encodes ? 1u : 0u);
    const ItemRun& part = pieces.coding(0).items[0];
    EXPECT_TRUE(part.keeps);
    EXPECT_EQ(part.for_compressor.flags,
              uint32_t{PENSTOCK_ITEM_KEEP | PENSTOCK_ITEM_REST_FOLLOWS | PENSTOCK_ITEM_LOSSLESS});
    EXPECT_EQ(part.for_compressor.work.data, part.memory_states[0]->data);
    EXPECT_EQ(part.memory_wants, fmt::format(" state {} x 1 float32", part.range.numel));
  }
}

}  // namespace
}  // namespace penstock::items_test
