// Each part that makes a set, without a set: the declaration, the places of gradients, the
// configuration of each gradient, and the agreement that all ranks continue or none continues.
#include "core/set/consensus.hpp"
#include "core/set/declaration.hpp"
#include "core/set/fits.hpp"
#include "core/set/residence.hpp"
#include "core/set/testing.hpp"

namespace penstock::set_up_parts_test {
namespace {

using testing::with_ranks;

const std::string kScheme = testing::scheme_text("compressor = \"none\"\nmemory = \"none\"");

// A declaration of gradients with these names and two elements each.
struct Declared {
  explicit Declared(std::vector<std::string> gradient_names, uint32_t flags = 0)
      : names(std::move(gradient_names)), gradients(names.size()) {
    for (size_t i = 0; i < names.size(); ++i) {
      gradients[i].struct_size = sizeof gradients[i];
      gradients[i].name = str(names[i]);
      gradients[i].shape = &extent;
      gradients[i].n_dims = 1;
      gradients[i].dtype = PENSTOCK_FLOAT32;
      gradients[i].device_type = PENSTOCK_DEVICE_CPU;
      gradients[i].given_bucket = PENSTOCK_NO_BUCKET;
      pointers.push_back(&gradients[i]);
    }
    c.struct_size = sizeof c;
    c.name = str("model");
    c.gradients = pointers.data();
    c.n_gradients = pointers.size();
    c.flags = flags;
  }
  Declared(const Declared&) = delete;
  int64_t extent = 2;
  std::vector<std::string> names;
  std::vector<penstock_gradient_declaration> gradients;
  std::vector<const penstock_gradient_declaration*> pointers;
  penstock_set_declaration c{};
};

Status take(Declaration& declaration, const penstock_set_declaration& c) {
  PENSTOCK_TRY(declaration.take_ranks(c));
  return declaration.take(c);
}

TEST(Declaration, FillsInWhatTheBucketsOfTheSetUseOfTheRun) {
  with_ranks(1, kScheme, [](Runtime& runtime, uint32_t) {
    const Services services = runtime.services();
    SetContext set;
    Declaration declaration(set, services);
    const Declared declared({"a", "b"}, PENSTOCK_SET_SUM);
    ASSERT_OK(take(declaration, declared.c));
    EXPECT_EQ(set.name, "model");
    EXPECT_EQ(set.world, 1u);
    EXPECT_EQ(set.engine, &services.engine);
    EXPECT_TRUE(set.result_is_sum);
    EXPECT_TRUE(declaration.has(PENSTOCK_SET_SUM));
    EXPECT_FALSE(declaration.has(PENSTOCK_SET_GIVEN_BUCKETS));
    ASSERT_EQ(declaration.declared().size(), 2u);
    EXPECT_EQ(declaration.declared()[1]->name, "b");
    ASSERT_OK(declaration.compare());
  });
}

TEST(Declaration, TakesTheCodePathOfTheRunForCodingIndices) {
  for (const auto& [setting, path] : {std::pair("portable", kernels::CodePath::kPortable),
                                      std::pair("auto", kernels::widest_code_path())})
    with_ranks(1, fmt::format("{}code_path = \"{}\"\n", kScheme, setting),
               [path = path](Runtime& runtime, uint32_t) {
                 const Services services = runtime.services();
                 SetContext set;
                 Declaration declaration(set, services);
                 ASSERT_OK(take(declaration, Declared({"a"}).c));
                 EXPECT_EQ(set.coding_path, path);
               });
}

TEST(Declaration, WhatIsWrongWithItIsSaidByName) {
  with_ranks(1, kScheme, [](Runtime& runtime, uint32_t) {
    const Services services = runtime.services();
    const auto refused = [&](const Declared& declared) {
      SetContext set;
      Declaration declaration(set, services);
      return std::string(take(declaration, declared.c).message());
    };
    EXPECT_EQ(refused(Declared({"a", "a"})), "two gradients of set 'model' are named 'a'");
    EXPECT_EQ(refused(Declared({"a", ""})), "gradient 1 of set 'model' has no name");
    Declared negative({"a"});
    negative.extent = -1;
    EXPECT_EQ(refused(negative), "gradient 'a' has the negative extent -1");
    Declared unknown({"a"});
    unknown.gradients[0].dtype = 99;
    EXPECT_EQ(refused(unknown), "gradient 'a' is of the unknown dtype 99");
    Declared owned({"a"}, PENSTOCK_SET_RESULT_AT_OWNER);
    owned.gradients[0].owner = 5;
    EXPECT_EQ(refused(owned),
              "gradient 'a' belongs to rank 5, which is not among the 1 ranks of set 'model'");
    Declared nameless({"a"});
    nameless.c.name = {};
    EXPECT_EQ(refused(nameless), "a set needs a name");
  });
}

TEST(Fits, MakesABoundSchemeForEachStageAndKnowsWhatItSends) {
  with_ranks(1, kScheme, [](Runtime& runtime, uint32_t) {
    const Services services = runtime.services();
    SetContext set;
    Declaration declaration(set, services);
    const Declared declared({"a", "b"});
    ASSERT_OK(take(declaration, declared.c));
    const SetChannels channels(set, services);
    const Fits fits(set, services, declaration, channels);
    Result<std::vector<SchemeStage>> stages = fits.all_stages();
    ASSERT_OK(stages.status());
    ASSERT_EQ(stages->size(), 1u);
    EXPECT_EQ(stages->front().bound_scheme->options(0).front().compressor->name(), "none");
    EXPECT_EQ(fits.traffic_of(*stages).front().gradient_bytes, 16);
    ASSERT_OK(fits.check(*stages->front().bound_scheme).status());
  });
}

TEST(Residence, OfGradientsOnTheCpuThereIsNothingToMoveAndNothingToWaitFor) {
  with_ranks(1, kScheme, [](Runtime& runtime, uint32_t) {
    const Services services = runtime.services();
    SetContext set;
    Declaration declaration(set, services);
    const Declared declared({"a"});
    ASSERT_OK(take(declaration, declared.c));
    Residence residence(set, services, declaration);
    ASSERT_OK(residence.find_devices());
    ASSERT_OK(residence.settle({}));
    EXPECT_FALSE(set.has_devices);
    EXPECT_EQ(set.on_device.residents, nullptr);
    EXPECT_EQ(residence.staged_bytes(), 0u);
    ASSERT_OK(residence.drain());
    int calls = 0;
    ASSERT_OK(residence.run_on_states([&] { return ++calls, Status(); }));
    EXPECT_EQ(calls, 1);
    EXPECT_FALSE(residence.abandons_compiled_plan_at_end());
  });
}

TEST(Residence, ADeviceThatIsNotThereIsSaidWithTheGradientOnIt) {
  with_ranks(1, kScheme, [](Runtime& runtime, uint32_t) {
    const Services services = runtime.services();
    SetContext set;
    Declaration declaration(set, services);
    Declared declared({"a"});
    declared.gradients[0].device_type = PENSTOCK_DEVICE_CUDA;
    declared.gradients[0].device_id = 77;
    ASSERT_OK(take(declaration, declared.c));
    const Status missing = Residence(set, services, declaration).find_devices();
    EXPECT_EQ(missing.message().find("gradient 'a' of set 'model' lies on cuda:77"), 0u)
        << missing.message();
  });
}

TEST(Consensus, WhatOneRankFindsWrongBetweenStepsAllHearAndNoneGoesOn) {
  with_ranks(2, kScheme, [](Runtime& runtime, uint32_t rank) {
    const Services services = runtime.services();
    SetContext set;
    set.name = "model";
    set.step.index = 3;
    Consensus consensus(set, services, services.world);
    ASSERT_OK(consensus.to_go_on("switch", {}));
    EXPECT_FALSE(consensus.refused_together());
    const Status mine = rank == 1 ? invalid_argument("no such plugin") : Status();
    const Status all = consensus.to_go_on("switch", mine);
    EXPECT_TRUE(consensus.refused_together());
    EXPECT_EQ(all.message(), rank == 1 ? "no such plugin"
                                       : "set 'model', switch at step 3: rank 1 cannot: no such "
                                         "plugin");
    consensus.begin();
    EXPECT_FALSE(consensus.refused_together());
  });
}

TEST(Consensus, AtTheStartARankThatCannotIsHeardByTheOthers) {
  with_ranks(2, kScheme, [](Runtime& runtime, uint32_t rank) {
    const Services services = runtime.services();
    SetContext set;
    set.name = "model";
    const Consensus consensus(set, services, services.world);
    const Status all =
        consensus.at_start("fit", rank == 1 ? invalid_argument("it does not fit") : Status());
    ASSERT_FALSE(all.ok());
    EXPECT_NE(all.message().find("it does not fit"), std::string::npos) << all.message();
  });
}

TEST(Consensus, TheFirstRankIsHeardAndTextsAreCompared) {
  with_ranks(2, kScheme, [](Runtime& runtime, uint32_t rank) {
    const Services services = runtime.services();
    SetContext set;
    const Consensus consensus(set, services, services.world);
    const Result<std::string> heard =
        consensus.hear_first("a plan", rank == 0 ? "of rank 0" : "of another");
    ASSERT_OK(heard.status());
    EXPECT_EQ(*heard, "of rank 0");
    ASSERT_OK(consensus.on_text("a text", "the same"));
    EXPECT_EQ(consensus.on_text("another text", rank == 0 ? "this" : "that").code(),
              Code::mismatch);
  });
}

}  // namespace
}  // namespace penstock::set_up_parts_test
