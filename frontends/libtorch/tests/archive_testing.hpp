// What an archive of torch keeps: a model, and an optimizer of this frontend that saves into it.
#ifndef PENSTOCK_LIBTORCH_ARCHIVE_TESTING_HPP
#define PENSTOCK_LIBTORCH_ARCHIVE_TESTING_HPP

#include <torch/serialize/archive.h>

#include <sstream>
#include <string>

#include "testing.hpp"

namespace penstock::torch::testing {

inline std::string text_of(const nn::Sequential& model) {
  std::ostringstream text;
  ::torch::save(model, text);
  return text.str();
}

// Saves both, trains on by `train_on`, loads both and trains on again, with equal bits. An archive
// of the model alone is refused with a message that has `refusal`.
template <typename Optimizer, typename TrainOn>
void expect_an_archive_keeps(nn::Sequential& model, Optimizer& optimizer, const TrainOn& train_on,
                             const std::string& refusal) {
  std::ostringstream written;
  {
    ::torch::serialize::OutputArchive archive;
    model->save(archive);
    optimizer.save(archive);
    archive.save_to(written);
  }
  train_on();
  const auto wanted = values_of(model);

  std::istringstream stream(written.str());
  ::torch::serialize::InputArchive archive;
  archive.load_from(stream);
  model->load(archive);
  optimizer.load(archive);
  train_on();
  EXPECT_TRUE(same_bits(values_of(model), wanted));
  ::torch::serialize::InputArchive other;
  std::istringstream text(text_of(model));
  other.load_from(text);
  expect_error(PENSTOCK_INVALID_ARGUMENT, refusal, [&] { optimizer.load(other); });
}

}  // namespace penstock::torch::testing

#endif  // PENSTOCK_LIBTORCH_ARCHIVE_TESTING_HPP
