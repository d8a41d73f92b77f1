// Named operations that cannot be carried out (wrong arguments, disagreement, aborts, closing), and
// the arithmetic of scales.
#include "core/operations/order.hpp"
#include "core/operations/scale.hpp"
#include "core/operations/testing.hpp"

#include <cmath>
#include <limits>

namespace penstock::failure_test {
namespace {

using testing::Array;
using testing::carry;
using testing::declare;
using testing::OperationsRank;
using testing::submit;
using testing::ThreadHub;

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

double one(uint64_t) {
  return 1;
}

void run(uint32_t size, const std::function<void(OperationsRank rank)>& body) {
  ThreadHub hub(size, true);
  testing::run_operations(hub, body);
}

TEST(OperationsMismatch, EveryRankIsToldWhatDiffersAndWhoHasWhat) {
  run(3, [](OperationsRank rank) {
    const bool odd = rank.rank() == 1;
    const Array array(PENSTOCK_FLOAT32, {4}, one);
    const Array other_shape(PENSTOCK_FLOAT32, {2, 2}, one);
    const Array other_type(PENSTOCK_FLOAT64, {4}, one);
    const auto expect = [&](const penstock_operation_declaration& declaration,
                            std::string_view part) {
      const Status status = carry(rank, declaration);
      EXPECT_EQ(status.code(), Code::mismatch);
      EXPECT_TRUE(contains(status.message(), part)) << status.message();
    };
    expect(declare(PENSTOCK_ALL_REDUCE, "x", odd ? &other_shape : &array),
           "ranks 0 and 2 have \"shape [4]\"; rank 1 has \"shape [2, 2]\"");
    expect(declare(PENSTOCK_ALL_REDUCE, "x", odd ? &other_type : &array),
           "rank 1 has \"dtype float64\"");
    expect(declare(odd ? PENSTOCK_ALL_GATHER : PENSTOCK_ALL_REDUCE, "x", &array),
           "rank 1 has \"pattern all_gather\"");
    penstock_operation_declaration declaration = declare(PENSTOCK_ALL_REDUCE, "x", &array);
    declaration.reduction = odd ? PENSTOCK_REDUCE_MAX : PENSTOCK_REDUCE_SUM;
    expect(declaration, "rank 1 has \"reduction max\"");
    declaration = declare(PENSTOCK_ALL_REDUCE, "x", &array);
    declaration.average = odd ? 0 : 1;
    expect(declaration, "ranks 0 and 2 have \"reduction average\"");
    declaration = declare(PENSTOCK_ALL_REDUCE, "x", &array);
    declaration.prescale = odd ? 0.5 : 1;
    expect(declaration, "rank 1 has \"prescale 0.5\"");
    declaration = declare(PENSTOCK_ALL_REDUCE, "x", &array);
    declaration.postscale = odd ? 0.5 : 1;
    expect(declaration, "rank 1 has \"postscale 0.5\"");
    declaration = declare(PENSTOCK_BROADCAST, "x", &array);
    declaration.root = odd ? 2 : 0;
    expect(declaration, "rank 1 has \"root 2\"");
    const Array wide(PENSTOCK_FLOAT32, {4, 2}, one);
    expect(declare(PENSTOCK_ALL_GATHER, "x", odd ? &wide : &array),
           "rank 1 has \"shape [any, 2]\"");
    // After these errors the name and the channel can still be used.
    EXPECT_TRUE(carry(rank, declare(PENSTOCK_ALL_REDUCE, "x", &array)).ok());
  });
}

TEST(OperationsArguments, ASecondOfTheSameNameIsRefusedWhileTheFirstIsPending) {
  run(2, [](OperationsRank rank) {
    const Array array(PENSTOCK_FLOAT32, {4}, one);
    const penstock_operation_declaration declaration = declare(PENSTOCK_ALL_REDUCE, "x", &array);
    if (rank.rank() == 0) {
      const std::shared_ptr<Operation> first = submit(rank, declaration);
      const Status second = rank.operations.submit(declaration).status();
      EXPECT_EQ(second.code(), Code::invalid_argument);
      EXPECT_TRUE(contains(second.message(), "'x' is still pending")) << second.message();
      EXPECT_TRUE(carry(rank, declare(PENSTOCK_BARRIER, "refused", nullptr)).ok());
      EXPECT_TRUE(first->wait().ok());
    } else {
      EXPECT_TRUE(carry(rank, declare(PENSTOCK_BARRIER, "refused", nullptr)).ok());
      EXPECT_TRUE(carry(rank, declaration).ok());
    }
    // The operation is done, so the name is free although the first object still exists.
    EXPECT_TRUE(carry(rank, declaration).ok());
  });
}

TEST(OperationsArguments, WhatOneRankCanSeeToBeWrongIsRefusedAtOnce) {
  run(2, [](OperationsRank rank) {
    const auto expect = [&](const penstock_operation_declaration& declaration, Code code,
                            std::string_view part) {
      const Status status = rank.operations.submit(declaration).status();
      EXPECT_EQ(status.code(), code) << part;
      EXPECT_TRUE(contains(status.message(), part)) << status.message();
    };
    const auto refuse = [&](const penstock_operation_declaration& declaration,
                            std::string_view part) {
      expect(declaration, Code::invalid_argument, part);
    };
    const auto changed = [](penstock_operation_declaration declaration, auto change) {
      change(declaration);
      return declaration;
    };
    const Array array(PENSTOCK_FLOAT32, {4, 3}, one);
    const Array scalar(PENSTOCK_FLOAT32, {}, one);
    const Array booleans(PENSTOCK_BOOL, {4}, one);
    const penstock_operation_declaration good = declare(PENSTOCK_ALL_REDUCE, "x", &array);
    using Declaration = penstock_operation_declaration;
    refuse(changed(good, [](Declaration& d) { d.struct_size = 8; }), "struct_size is 8");
    refuse(declare(PENSTOCK_ALL_REDUCE, "", &array), "its name is empty");
    refuse(declare(PENSTOCK_ALL_REDUCE, "x", nullptr), "needs an input tensor");
    refuse(declare(PENSTOCK_SEND, "x", &array), "pattern is 6");
    refuse(declare(99, "x", &array), "pattern is 99");
    refuse(changed(good, [](Declaration& d) { d.reduction = 9; }), "reduction is 9");
    refuse(changed(good, [](Declaration& d) { d.average = 1, d.reduction = PENSTOCK_REDUCE_MIN; }),
           "average is 1");
    refuse(changed(good, [](Declaration& d) { d.prescale = std::nan(""); }), "prescale is nan");
    refuse(declare(PENSTOCK_ALL_REDUCE, "x", &booleans), "sum of bool");
    refuse(declare(PENSTOCK_ALL_GATHER, "x", &scalar), "all_gather of a scalar");
    refuse(declare(PENSTOCK_REDUCE_SCATTER, "x", &scalar), "reduce_scatter of a scalar");
    refuse(changed(declare(PENSTOCK_BROADCAST, "x", &array), [](Declaration& d) { d.root = 2; }),
           "root is 2");
    refuse(
        changed(declare(PENSTOCK_BROADCAST, "x", &array), [](Declaration& d) { d.postscale = 2; }),
        "reduces nothing");
    const uint32_t not_mine[] = {1 - rank.rank()};
    refuse(changed(good, [&](Declaration& d) { d.ranks = not_mine, d.n_ranks = 1; }),
           "do not include this rank");
    const uint32_t unordered[] = {1, 0};
    refuse(changed(good, [&](Declaration& d) { d.ranks = unordered, d.n_ranks = 2; }),
           "expected ascending ranks");
    const uint64_t splits[] = {3, 2, 0};
    const Declaration to_all = declare(PENSTOCK_ALL_TO_ALL, "x", &array);
    refuse(changed(to_all, [&](Declaration& d) { d.splits = splits, d.n_splits = 2; }),
           "splits add up to more");
    refuse(changed(to_all, [&](Declaration& d) { d.splits = splits, d.n_splits = 3; }),
           "there are 3 splits");
    const Array three(PENSTOCK_FLOAT32, {3}, one);
    refuse(declare(PENSTOCK_ALL_TO_ALL, "x", &three), "cannot share equally");
    refuse(declare(PENSTOCK_ALL_REDUCE, "x", &array, &three),
           "the output has 3 elements, expected 12");
    refuse(declare(PENSTOCK_ALL_GATHER, "x", &array, &array), "overlap");

    Array strided(PENSTOCK_FLOAT32, {2, 3}, one);
    const int64_t transposed[] = {1, 2};
    strided.tensor.strides = transposed;
    refuse(declare(PENSTOCK_ALL_REDUCE, "x", &strided), "not contiguous");
    Array lying(PENSTOCK_FLOAT32, {2, 3}, one);
    lying.tensor.numel = 7;
    refuse(declare(PENSTOCK_ALL_REDUCE, "x", &lying), "numel 7");
    Array huge(PENSTOCK_FLOAT32, {0}, one);
    const int64_t sizes[] = {0, int64_t{1} << 40, int64_t{1} << 40};
    huge.tensor.shape = sizes;
    huge.tensor.n_dims = 3;
    refuse(declare(PENSTOCK_ALL_GATHER, "x", &huge), "more than memory can hold");
    Array untyped(PENSTOCK_FLOAT32, {2}, one);
    untyped.tensor.dtype = 77;
    refuse(declare(PENSTOCK_ALL_REDUCE, "x", &untyped), "dtype 77");
    Array elsewhere(PENSTOCK_FLOAT32, {2}, one);
    elsewhere.tensor.device_type = PENSTOCK_DEVICE_CUDA;
    expect(declare(PENSTOCK_ALL_REDUCE, "x", &elsewhere), Code::unimplemented,
           "lies on cuda:0, expected the CPU");
    const Array lacking(PENSTOCK_UINT16, {2}, one);
    expect(declare(PENSTOCK_ALL_REDUCE, "x", &lacking), Code::unimplemented,
           "does not reduce uint16");

    // The stride of a dimension with one element has no effect.
    Array single(PENSTOCK_FLOAT32, {1, 3}, one);
    const int64_t odd[] = {77, 1};
    single.tensor.strides = odd;
    EXPECT_TRUE(carry(rank, declare(PENSTOCK_ALL_REDUCE, "x", &single)).ok());
  });
}

TEST(OperationsEnd, AnAbortEndsEveryWait) {
  run(3, [](OperationsRank rank) {
    const Array array(PENSTOCK_FLOAT32, {4}, one);
    std::shared_ptr<Operation> waiting;
    if (rank.rank() != 0) waiting = submit(rank, declare(PENSTOCK_ALL_REDUCE, "x", &array));
    EXPECT_TRUE(carry(rank, declare(PENSTOCK_BARRIER, "asked", nullptr)).ok());
    if (rank.rank() == 0) {
      rank.control.abort(internal("loss is infinite"));
      return;
    }
    const Status status = waiting->wait();
    EXPECT_EQ(status.code(), Code::peer_failed);
    EXPECT_TRUE(contains(status.message(), "rank 0 gave up: loss is infinite")) << status.message();
    EXPECT_EQ(waiting->result().status().message(), status.message());
  });
}

TEST(OperationsEnd, ATransportErrorIsThatOfTheOperation) {
  ThreadHub hub(2, false);
  hub.refuse = true;
  testing::run_operations(hub, [](OperationsRank rank) {
    const Array array(PENSTOCK_FLOAT32, {4}, one);
    const Status status = carry(rank, declare(PENSTOCK_ALL_REDUCE, "x", &array));
    EXPECT_EQ(status.code(), Code::device_error);
    EXPECT_EQ(status.message(), "operation 'x': the cable is cut");
  });
}

TEST(OperationsEnd, ClosingEndsWhatIsPendingEvenInFlight) {
  ThreadHub hub(2, false);
  const penstock_collective table = testing::thread_table();
  testing::run_world(2, [&](Control& control) {
    Communication communication;
    Operations::Options options;
    options.control = &control;
    options.communication = &communication;
    options.table = &table;
    options.instance = &hub;
    options.world = Group::joined(control.rank(), hub.hosts).value();
    const Array array(PENSTOCK_FLOAT32, {4}, one);
    std::shared_ptr<Operation> waiting;
    {
      std::unique_ptr<Operations> operations = std::move(Operations::make(options).value());
      const OperationsRank rank{control, communication, *operations};
      if (control.rank() == 0) waiting = submit(rank, declare(PENSTOCK_ALL_REDUCE, "x", &array));
    }
    if (waiting != nullptr) {
      const Status status = waiting->wait();
      EXPECT_EQ(status.code(), Code::aborted);
      EXPECT_TRUE(contains(status.message(), "the runtime is closing")) << status.message();
    }
    EXPECT_TRUE(control.agree("closed", "", {}, testing::kLongUs).ok());
  });
}

TEST(OperationsChannel, AWorldChannelThatCarriedMessagesBeforeGoesOnCounting) {
  ThreadHub hub(2, true);
  const penstock_collective table = testing::thread_table();
  testing::run_world(2, [&](Control& control) {
    Communication communication;
    Communication::OpenRequest request{};
    request.table = &table;
    request.instance = &hub;
    request.group = Group::joined(control.rank(), hub.hosts).value();
    request.group_id = 7;
    request.name = "world";
    Channel* channel = communication.open_channel(request).value();
    const Array array(PENSTOCK_FLOAT32, {4}, one);
    penstock_message message{};
    message.struct_size = sizeof message;
    message.pattern = PENSTOCK_ALL_REDUCE;
    message.reduction = PENSTOCK_REDUCE_SUM;
    message.dtype = PENSTOCK_FLOAT32;
    message.count = 4;
    message.send = message.receive = array.tensor.data;
    EXPECT_TRUE(communication.transfer_and_wait(channel, message).ok());

    Operations::Options options;
    options.control = &control;
    options.communication = &communication;
    options.table = &table;
    options.instance = &hub;
    options.world = Group::joined(control.rank(), hub.hosts).value();
    options.world_channel = channel;
    std::unique_ptr<Operations> operations = std::move(Operations::make(options).value());
    const OperationsRank rank{control, communication, *operations};
    EXPECT_TRUE(carry(rank, declare(PENSTOCK_ALL_REDUCE, "x", &array, &array)).ok());
    EXPECT_EQ(array.values(), std::vector<double>(4, 4));
    EXPECT_TRUE(control.agree("done", "", {}, testing::kLongUs).ok());
  });
  EXPECT_EQ(hub.opened.size(), 2u);  // one channel per rank
}

TEST(OperationsAlone, AWorldOfOneNeedsNoTransport) {
  testing::run_world(1, [](Control& control) {
    Operations::Options options;
    options.control = &control;
    std::unique_ptr<Operations> operations = std::move(Operations::make(options).value());
    const Array input(PENSTOCK_UINT16, {3, 2}, [](uint64_t i) { return double(i); });
    for (uint32_t pattern : {PENSTOCK_ALL_REDUCE, PENSTOCK_ALL_GATHER, PENSTOCK_BROADCAST,
                             PENSTOCK_ALL_TO_ALL, PENSTOCK_REDUCE_SCATTER}) {
      const Array output(PENSTOCK_UINT16, {3, 2}, one);
      const std::shared_ptr<Operation> operation =
          *operations->submit(declare(pattern, "x", &input, &output));
      EXPECT_TRUE(operation->wait().ok());
      EXPECT_EQ(output.values(), input.values()) << pattern;
    }
    EXPECT_TRUE((*operations->submit(declare(PENSTOCK_BARRIER, "x", nullptr)))->wait().ok());
  });
}

TEST(OperationsLayout, DetailsOfPeersThatMakeNoSenseAreRefused) {
  const Array array(PENSTOCK_FLOAT32, {4, 3}, one);
  const Group pair = Group::joined(0, std::vector<uint32_t>{0, 0}).value();
  const OperationOrder gather = read_order(declare(PENSTOCK_ALL_GATHER, "x", &array), pair).value();
  const OperationOrder to_all = read_order(declare(PENSTOCK_ALL_TO_ALL, "x", &array), pair).value();
  EXPECT_TRUE(lay_out(gather, {"4", "0"}).ok());
  EXPECT_TRUE(lay_out(to_all, {"2,2", "0,4"}).ok());
  for (const char* detail :
       {"", "x", "-1", "4,", "4 ", "99999999999999999999", "9999999999999999999"}) {
    EXPECT_EQ(lay_out(gather, {"4", detail}).status().code(), Code::invalid_payload) << detail;
  }
  for (const char* detail : {"", "2", "2,2,2", "2,x", ",2", "2,"}) {
    EXPECT_EQ(lay_out(to_all, {"2,2", detail}).status().code(), Code::invalid_payload) << detail;
  }
  EXPECT_EQ(lay_out(gather, {"4"}).status().code(), Code::invalid_payload);
}

template <typename T>
T scaled(uint32_t dtype, T value, double factor, double divisor) {
  scale_elements(dtype, &value, &value, 1, factor, divisor);
  return value;
}

TEST(OperationsScale, IntegersAreTruncatedTowardsZeroAndClamped) {
  EXPECT_EQ(scaled<int32_t>(PENSTOCK_INT32, 7, 0.5, 1), 3);
  EXPECT_EQ(scaled<int32_t>(PENSTOCK_INT32, -7, 0.5, 1), -3);
  EXPECT_EQ(scaled<int8_t>(PENSTOCK_INT8, 100, 2, 1), 127);
  EXPECT_EQ(scaled<int8_t>(PENSTOCK_INT8, -100, 2, 1), -128);
  EXPECT_EQ(scaled<uint8_t>(PENSTOCK_UINT8, 3, -1, 1), 0);
  EXPECT_EQ(scaled<int64_t>(PENSTOCK_INT64, INT64_MAX, 1, 1), INT64_MAX);
  EXPECT_EQ(scaled<uint64_t>(PENSTOCK_UINT64, UINT64_MAX, 2, 1), UINT64_MAX);
  EXPECT_EQ(scaled<int64_t>(PENSTOCK_INT64, INT64_MIN, 2, 1), INT64_MIN);
}

TEST(OperationsScale, AMeanOfEqualIntegersIsExactForEveryNumberOfRanks) {
  // The core divides. A product with the rounded reciprocal would be wrong: 49 * (1 / 49.0) is
  // below 1.
  for (int size = 1; size <= 4096; ++size)
    EXPECT_EQ(scaled<int32_t>(PENSTOCK_INT32, 5 * size, 1, size), 5);
}

TEST(OperationsScale, FloatsHaveTheBitsOfOneProductInTheirOwnType) {
  for (int i = 1; i < 1000; ++i) {
    const float value = static_cast<float>(i) / 7;
    const float product = value * static_cast<float>(0.1 / 3);
    ASSERT_EQ(scaled<float>(PENSTOCK_FLOAT32, value, 0.1, 3), product) << i;
    ASSERT_EQ(scaled<double>(PENSTOCK_FLOAT64, value, 0.1, 3), value * (0.1 / 3)) << i;
  }
}

TEST(OperationsScale, AnAverageIsADivisionToTheBit) {
  for (const int size : {3, 5, 7, 49, 1000})
    for (int i = 1; i < 1000; ++i) {
      const float value = static_cast<float>(i) / 7;
      ASSERT_EQ(scaled<float>(PENSTOCK_FLOAT32, value, 1, size), value / float(size)) << i;
      ASSERT_EQ(scaled<double>(PENSTOCK_FLOAT64, value, 1, size), double(value) / size) << i;
      const Array half(PENSTOCK_BFLOAT16, {1}, [&](uint64_t) { return value; });
      const double kept = half.values()[0];
      const Array expected(PENSTOCK_BFLOAT16, {1},
                           [&](uint64_t) { return float(kept) / float(size); });
      scale_elements(PENSTOCK_BFLOAT16, half.tensor.data, half.tensor.data, 1, 1, size);
      ASSERT_EQ(half.values()[0], expected.values()[0]) << i;
    }
}

TEST(OperationsScale, HalfPrecisionComputesInFloatBeyondOneTile) {
  constexpr uint64_t kCount = 2500;
  for (uint32_t dtype : {PENSTOCK_FLOAT16, PENSTOCK_BFLOAT16}) {
    const Array source(dtype, {kCount}, [](uint64_t i) { return double(i % 128); });
    Array target(dtype, {kCount}, one);
    scale_elements(dtype, source.tensor.data, target.tensor.data, kCount, 3, 2);
    const std::vector<double> values = target.values();
    for (uint64_t i = 0; i < kCount; ++i) {
      // At most 8 significant bits in 190.5 after rounding bf16: compare in the type itself.
      const Array expected(dtype, {1}, [&](uint64_t) { return double(i % 128) * 1.5; });
      ASSERT_EQ(values[i], expected.values()[0]) << i;
    }
  }
}

}  // namespace
}  // namespace penstock::failure_test
