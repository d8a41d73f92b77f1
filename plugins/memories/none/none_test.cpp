// A memory that keeps nothing: values that top-k does not send are lost.
#include <gtest/gtest.h>

#include <testing/gtest.hpp>
#include <testing/rig.hpp>

namespace penstock::test {
namespace {

TEST(NoMemory, WhatIsNotSentInOneStepDoesNotComeInALaterOne) {
  const LoadedPlugin memory = load_plugin(PENSTOCK_PLUGIN_FILE);
  CompressorRig rig({.ranks = 1}, {{4}}, load_plugin("compressor", "topk"), {{"density", 0.25}},
                    memory);
  EXPECT_EQ(rig.step({{{4, 3, 2, 1}}}), (Tensors{{4, 0, 0, 0}}));
  EXPECT_EQ(rig.step({{{0, 0, 0, 0.5}}}), (Tensors{{0, 0, 0, 0.5}}));
}

}  // namespace
}  // namespace penstock::test
