// The C interface of libpenstock, as frontends use it.
#include <penstock/runtime.h>

#include <gtest/gtest.h>

#include <string>

namespace {

penstock_str str(const std::string& text) {
  return {text.data(), text.size()};
}

TEST(ErrorOfAFrontend, KeepsItsCodeAndACopyOfItsText) {
  for (uint32_t code = PENSTOCK_INVALID_ARGUMENT; code <= PENSTOCK_INTERNAL; ++code) {
    std::string text = "rank 3 of the run is gone";
    penstock_status* const error = penstock_error_make(code, str(text));
    text.assign(text.size(), '?');
    EXPECT_EQ(penstock_error_code(error), code);
    const penstock_str message = penstock_error_message(error);
    EXPECT_EQ(std::string(message.data, message.size), "rank 3 of the run is gone");
    penstock_error_free(error);
  }
}

TEST(ErrorOfAFrontend, ACodeThatNobodyKnowsIsInternal) {
  for (const uint32_t code : {uint32_t{PENSTOCK_INTERNAL} + 1, UINT32_MAX}) {
    penstock_status* const error = penstock_error_make(code, str("odd"));
    EXPECT_EQ(penstock_error_code(error), uint32_t{PENSTOCK_INTERNAL});
    penstock_error_free(error);
  }
}

TEST(ErrorOfAFrontend, OkIsNoError) {
  EXPECT_EQ(penstock_error_make(PENSTOCK_OK, str("well")), nullptr);
}

}  // namespace
