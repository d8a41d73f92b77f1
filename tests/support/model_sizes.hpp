// The sizes of the gradients of models with which the authors' planners were run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace penstock::test {

// Elements of each gradient in backward order.
using SizeList = std::vector<uint64_t>;

inline SizeList bert_base() {
  SizeList sizes = {2, 1536, 768, 589824};
  for (int layer = 0; layer < 12; ++layer)
    for (uint64_t size : {768, 768, 768, 2359296, 3072, 2359296, 768, 768, 768, 589824, 768, 589824,
                          768, 589824, 768, 589824})
      sizes.push_back(size);
  for (uint64_t size : {768, 768, 1536, 393216, 23445504}) sizes.push_back(size);
  return sizes;
}

inline SizeList resnet50() {
  struct Stage {
    uint64_t width, blocks, first_in;
  };
  SizeList sizes = {100, 204800};
  for (const Stage& stage : {Stage{512, 3, 1024}, {256, 6, 512}, {128, 4, 256}, {64, 3, 64}}) {
    const uint64_t w = stage.width;
    const uint64_t out = 4 * w;
    for (uint64_t block = stage.blocks; block > 0; --block) {
      const bool first = block == 1;
      if (first) sizes.insert(sizes.end(), {out, out, stage.first_in * out});
      sizes.insert(sizes.end(),
                   {out, out, out * w, w, w, 9 * w * w, w, w, (first ? stage.first_in : out) * w});
    }
  }
  sizes.insert(sizes.end(), {64, 64, 1728});
  return sizes;
}

// For pictures of 32 by 32 and 100 classes: thirteen convolutions with bias and batch norm, three
// linear layers.
inline SizeList vgg16() {
  SizeList sizes = {100, 409600, 4096, 16777216, 4096, 2097152};
  const SizeList channels = {3, 64, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512, 512, 512};
  for (size_t layer = 13; layer > 0; --layer) {
    const uint64_t out = channels[layer];
    sizes.insert(sizes.end(), {out, out, out, 9 * out * channels[layer - 1]});
  }
  return sizes;
}

}  // namespace penstock::test
